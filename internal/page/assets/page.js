// An open page follows what the daemon tells it, and shows times as they are here. Without this
// script everything is shown all the same, as it was when the page was loaded.
"use strict";

const page = {
  stamp: 0, // of the events, that what is shown knows
  told: 0, // of the last event
  skew: 0, // the server's clock less this machine's, ms
  source: null,
  fetching: false,
};

const main = () => document.getElementById("main");

// Times: in the zone of this machine, with UTC in their titles, and how long ago or ahead.

const local = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const localDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const localTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const localClock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

function span(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const at = Math.max(0, parts.findIndex(([size]) => seconds >= size));
  if (seconds < 1) return "0s";
  let text = Math.floor(seconds / parts[at][0]) + parts[at][1];
  const rest = at + 1 < parts.length ? Math.floor((seconds % parts[at][0]) / parts[at + 1][0]) : 0;
  if (rest > 0 && seconds >= 60) text += rest + parts[at + 1][1];
  return text;
}

function relative(at) {
  const seconds = Math.round((Date.now() + page.skew - at) / 1000);
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? span(seconds) + " ago" : "in " + span(-seconds);
}

// here is an instant in the form of these pages: of today without the date, and unless it is
// amid a sentence with how far away it is.
function here(one) {
  const at = new Date(one.dateTime);
  if (one.dataset.utc.length < 12) return localClock.format(at);
  const text = (localDay.format(at) === localDay.format(Date.now() + page.skew) ? localTime : local).format(at);
  return one.classList.contains("brief") ? text : text + " (" + relative(at) + ")";
}

function showTimes(root) {
  for (const one of root.querySelectorAll("time")) {
    if (one.dataset.utc) continue;
    one.dataset.utc = one.textContent;
    one.title = one.textContent;
    one.textContent = here(one);
  }
}

function tick() {
  for (const one of document.querySelectorAll(".age")) one.textContent = relative(new Date(one.dataset.at));
  for (const one of document.querySelectorAll("time[data-utc]")) {
    const text = here(one);
    if (one.textContent !== text) one.textContent = text;
  }
}

function arrive() {
  const now = main();
  page.stamp = Number(now.dataset.stamp);
  page.skew = new Date(now.dataset.now) - Date.now();
  showTimes(now);
}

// While the page is replaced, the parts that a person is using stay unchanged.

function keyOf(one) {
  if (one.id) return "#" + one.id;
  return [one.tagName, one.getAttribute("href") || "", one.getAttribute("name") || "", one.form ? one.form.getAttribute("action") : "", one.getAttribute("aria-label") || "", one.tagName === "SUMMARY" ? one.parentNode.id : ""].join(" ");
}

function findAgain(root, wanted) {
  const all = Array.from(root.querySelectorAll(wanted.tag)).filter((one) => keyOf(one) === wanted.key);
  return all[wanted.nth] || all[0];
}

function place(one, root) {
  const key = keyOf(one);
  const all = Array.from(root.querySelectorAll(one.tagName)).filter((other) => keyOf(other) === key);
  return { tag: one.tagName, key: key, nth: all.indexOf(one) };
}

function replace(next) {
  const old = main();
  const active = old.contains(document.activeElement) && document.activeElement !== old ? document.activeElement : null;
  const focused = active && place(active, old);
  const selection = active && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
  const open = Array.from(old.querySelectorAll("details[open]"), (one) => one.id);
  const changed = (one) => (one.tagName === "SELECT" ? !one.selectedOptions[0] || !one.selectedOptions[0].defaultSelected && one.selectedIndex > 0 : one.type !== "hidden" && one.value !== one.defaultValue);
  const fields = Array.from(old.querySelectorAll("input, select, textarea")).filter(changed).map((one) => [place(one, old), one.value]);
  const scrolled = Array.from(old.querySelectorAll(".scroll, pre"), (one) => [place(one, old), one.scrollLeft, one.scrollTop]).filter(([, left, top]) => left || top);
  const said = old.querySelector(".said");
  const at = window.scrollY;

  next = document.adoptNode(next);
  if (said && !next.querySelector(".said")) next.prepend(said);
  old.replaceWith(next);
  arrive();
  for (const id of open) {
    const one = id && document.getElementById(id);
    if (one) one.open = true;
  }
  for (const [where, value] of fields) {
    const one = findAgain(next, where);
    if (one) one.value = value;
  }
  for (const [where, left, top] of scrolled) {
    const one = findAgain(next, where);
    if (one) one.scrollTo(left, top);
  }
  const again = focused && findAgain(next, focused);
  if (again) {
    again.focus({ preventScroll: true });
    if (selection && selection[0] !== null) {
      try { again.setSelectionRange(selection[0], selection[1]); } catch { /* a kind of field without a selection */ }
    }
  }
  window.scrollTo(window.scrollX, at);
}

async function refresh() {
  if (page.fetching) return;
  page.fetching = true;
  try {
    while (page.told > page.stamp && !document.hidden) {
      const wanted = page.told;
      const answer = await fetch(location.href, { headers: { "Quotactl-Live": "1" }, cache: "no-store" });
      if (answer.redirected || !(answer.headers.get("Content-Type") || "").startsWith("text/html")) { // signed out, or another daemon
        location.reload();
        return;
      }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (!next) return;
      replace(next);
      if (page.stamp < wanted) return; // an older daemon has answered
    }
  } catch {
    say("off", "reconnecting");
  } finally {
    page.fetching = false;
  }
}

function say(kind, text) {
  const live = document.getElementById("live");
  const was = live.className + live.textContent;
  if (was !== "live " + kind + text) {
    live.className = "live " + kind;
    live.textContent = text;
  }
}

function follow() {
  if (document.hidden || page.source || !window.EventSource) return;
  const source = new EventSource("/events");
  page.source = source;
  source.addEventListener("change", (event) => {
    say("on", "live");
    page.told = Number(event.data);
    refresh();
  });
  source.onerror = () => {
    say("off", "reconnecting");
    if (source.readyState === EventSource.CLOSED) { // refused: the browser does not try again
      page.source = null;
      setTimeout(follow, 5000);
    }
  };
}

function rest() {
  if (page.source) page.source.close();
  page.source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
window.addEventListener("pagehide", rest);
window.addEventListener("pageshow", (event) => {
  if (event.persisted) follow();
});
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone !== "UTC") document.getElementById("zone").textContent = "Times are in " + zone + ", those on charts in UTC.";
arrive();
tick();
setInterval(tick, 1000);
if (document.querySelector("#main form[action='/login']") === null) follow();
