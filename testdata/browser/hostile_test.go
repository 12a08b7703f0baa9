package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// hostile is a string of somebody who wants the page to be theirs. It opens with a word by which
// a page that shows it is known.
func hostile(word string) string {
	return word + `<script>window.owned=1;alert(1)</script><b class="owned">` +
		`"><img class='owned' src=x onerror=alert(1)>'-alert(1)-'</textarea></title></script><svg class="owned" onload="alert(1)">` +
		`<a class="owned" href="javascript:alert(1)">javascript:alert(1)</a><!-- {{.}} ${alert(1)} &lt;b&gt; ]]>`
}

const hostileConfig = `
[store]
url = "sqlite:quotactl.db"
timeout = "1m"
[upstream.up.costs]
"get" = 1
[upstream.up.limit.hour]
limit  = 100
window = "1h"
[upstream.up.refusal.gone]
means = "exhausted"
text  = "quota gone"
[upstream.up.credential.one]
[upstream.up.credential.two]

[job.says]
budget   = "up/one"
schedule = "0 0 1 1 *"
command  = ["sh", "-c", "cat says.txt; cat says.txt >&2; exit 3"]
[job.asks]
budget   = "up/one"
schedule = "0 0 1 1 *"
regions  = ["US"]
[job.asks.fetch]
operation = "get"
url       = "UPSTREAM/fails"
output    = "data/{job}/{region}{tick}"
[job.refused]
budget   = "up/one"
schedule = "0 0 1 1 *"
[job.refused.fetch]
operation = "get"
url       = "UPSTREAM/refuses"
output    = "data/{job}/{region}{tick}"
[job.waits]
budget   = "up/two"
schedule = "0 0 1 1 *"
regions  = ["US", "GB"]
command  = ["true"]
[job.recorded]
budget   = "up/two"
schedule = "0 0 1 1 *"
command  = ["true"]
[alert.team]
url_env = "TEAM_WEBHOOK"
`

// Texts that people, upstreams and programs wrote appear on each page as text: none of them
// becomes an element, runs, or opens a dialog.
func TestHostileTexts(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Hostile", hostile("w-header"))
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = fmt.Fprint(w, hostile("w-body"))
		case "/refuses":
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, "quota gone "+hostile("w-refusal"))
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = fmt.Fprint(w, hostile("w-hook"))
		}
	}))
	t.Cleanup(upstream.Close)
	w := newWorld(t, strings.ReplaceAll(hostileConfig, "UPSTREAM", upstream.URL), "TEAM_WEBHOOK="+upstream.URL+"/hook")
	w.write("says.txt", hostile("w-output")+"\n")
	w.run(1, "run", "--once", "says")
	w.run(1, "run", "--once", "asks")
	w.run(0, "run", "--once", "refused")
	w.run(0, "lock", "up/two", "--for", "2h", "--why", hostile("w-lock")[:180])
	w.run(0, "pause", "waits", "--note", hostile("w-pause"))
	w.run(0, "trigger", "waits", "--region", "US", "--note", hostile("w-trigger"))
	recordHostile(t, w)
	w.start()

	words := []string{"w-output", "w-body", "w-refusal", "w-lock", "w-pause", "w-record", "w-log", "w-note"}
	seen := map[string]bool{}
	paths := []string{"/", "/jobs", "/runs", "/runs?errors=1", "/plan", "/why", "/alerts", "/budget?name=up/one", "/budget?name=up/two"}
	for _, job := range []string{"says", "asks", "refused", "waits", "recorded"} {
		paths = append(paths, "/job?name="+job, "/runs?job="+job)
	}
	for _, key := range []string{"name", "job", "budget", "operation", "region", "outcome", "since", "span"} { // what a link can have
		for _, page := range []string{"/budget", "/job", "/runs", "/plan", "/why", "/login?back=/", "/"} {
			join := map[bool]string{false: "?", true: "&"}[strings.Contains(page, "?")]
			paths = append(paths, page+join+key+"="+url.QueryEscape(hostile("w-query")))
		}
	}
	b := newTab(t, w.host())
	b.size(desk, false)
	for _, path := range paths {
		asked := strings.Contains(path, "w-query")
		status := b.open(w.url + path)
		if status != http.StatusOK && !asked {
			t.Error(path, "has status", status)
		}
		// What a script of the page adds is there once it has run.
		eval[bool](b, `new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => resolve(true))))`)
		text := eval[string](b, "document.body.textContent")
		for _, word := range words {
			seen[word] = seen[word] || strings.Contains(text, word+"<script>")
		}
		check.Equal(t, eval[string](b, ownedElements), "", path, "has elements of a hostile text")
		for _, fault := range b.take() {
			if !asked || !strings.Contains(fault, "the server responded with a status of") {
				t.Error(path, fault)
			}
		}
	}
	for _, word := range words {
		if !seen[word] {
			t.Errorf("no page shows the text %s unchanged, so this test does not show that it is harmless", word)
		}
	}
}

// ownedElements describes what a hostile text has become in the page; empty: nothing.
const ownedElements = `(() => {
	const found = [...document.querySelectorAll(".owned, [href^='javascript:' i], [src='x'], b.owned")].map(el => el.outerHTML);
	for (const el of document.querySelectorAll("*")) for (const at of el.attributes) if (/^on/i.test(at.name)) found.push(el.outerHTML);
	if (window.owned) found.push("a script ran");
	return found.join("\n").slice(0, 500);
})()`

// recordHostile writes a record into the store as no version of quotactl would.
func recordHostile(t testing.TB, w *world) {
	t.Helper()
	at := jobs.Instant{Time: time.Now().Add(-time.Hour)}
	p := newPast(time.Now())
	p.passes["recorded"] = []jobs.Record{{
		Tick: at, Kind: jobs.Triggered, Outcome: jobs.Failed, Reason: hostile("w-reason"), Started: at, Ended: at,
		Host: hostile("w-host"), Error: hostile("w-error"), Request: hostile("w-request"), Note: hostile("w-note"),
		Runs: []jobs.Run{{
			Region: hostile("w-region"), Outcome: jobs.Failed, Reason: hostile("w-run-reason"), Started: at, Ended: at,
			Output: hostile("w-file"), Error: hostile("w-record"), Log: []string{hostile("w-log"), "\x1b[31m\x00\u202eesrever\u2066"},
		}},
	}}
	store := must.Get(sqlitestore.Open(context.Background(), filepath.Join(w.dir, "quotactl.db"), sqlitestore.Options{Timeout: time.Minute}))(t)
	p.record(t.Context(), t, store)
	must.Do(t, store.Close())
}
