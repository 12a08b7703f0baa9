package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// used is how much of a budget's first limit is used, as pages show it.
func (w *world) used(budget string) string {
	w.t.Helper()
	var status struct {
		Budgets []struct {
			Limits []struct {
				Used int64 `json:"used"`
			} `json:"limits"`
		} `json:"budgets"`
	}
	must.Do(w.t, json.Unmarshal([]byte(w.run(0, "status", budget, "--json")), &status))
	return commas(status.Budgets[0].Limits[0].Used)
}

// commas writes a number with a comma before each three digits.
func commas(n int64) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// appears waits until the page shows a text, without a reload, and returns when that was.
func (b *tab) appears(text string) time.Time {
	b.t.Helper()
	at := must.Get(chromedp.Run(b.ctx, chromedp.PollFunction[float64](
		`text => document.body.innerText.includes(text) && Date.now()`, chromedp.WithPollingArgs(text), chromedp.WithPollingTimeout(5*time.Minute))))(b.t)
	return time.UnixMilli(int64(at))
}

// charges charges a unit, and returns how long after that an open page shows it.
func (b *tab) charges(w *world) time.Duration {
	b.t.Helper()
	w.run(0, "charge", "youtube/key1", "videos.list")
	ended := time.Now()
	return max(0, b.appears(w.used("youtube/key1")).Sub(ended))
}

// An open page shows each charge, and keeps where the reader is: the focus, what is open, and how
// far it is scrolled. BenchmarkLiveUpdate measures after how long.
func TestLiveUpdate(t *testing.T) {
	w := rich(t)
	w.start()
	for _, path := range []string{"/", "/budget?name=youtube/key1"} {
		t.Run(path, func(t *testing.T) {
			b := newTab(t, w.host())
			b.size(desk, false)
			b.visit(w.url+path, http.StatusOK)
			where := eval[string](b, `(() => {
				window.notLoadedAgain = true;
				const folded = document.querySelector("details:not([open])");
				if (folded) folded.open = true;
				const links = [...document.querySelectorAll("main a[href]")];
				links[Math.floor(links.length / 2)].focus();
				scrollTo(0, 120);
				return %s;
			})()`, position)
			for range 3 {
				t.Log(path, "shows a charge after", b.charges(w))
			}
			check.Equal(t, eval[bool](b, "window.notLoadedAgain === true"), true, "the page was not loaded again")
			check.Equal(t, eval[string](b, "%s", position), where, "the focus, what is open, and the place")
			for _, fault := range b.inspect(desk) {
				t.Error("after the updates:", fault)
			}
		})
	}
}

// position is what a reader has done to the page.
const position = `JSON.stringify({
	focus: document.activeElement.tagName + " " + document.activeElement.getAttribute("href"),
	open: [...document.querySelectorAll("details")].map(d => d.open),
	scrolled: scrollY,
})`

// What a person does on the command line shows on the open page that is about it.
func TestLiveCommands(t *testing.T) {
	w := rich(t)
	w.start()
	for _, c := range []struct {
		path, shows string
		command     []string
	}{
		{"/", "locked from the test", []string{"lock", "youtube/key1", "--for", "1h", "--why", "locked from the test"}},
		{"/budget?name=youtube/key1", "locked again", []string{"lock", "youtube/key1", "--for", "2h", "--why", "locked again"}},
		{"/jobs", "paused from the test", []string{"pause", "trending", "--note", "paused from the test"}},
		{"/job?name=trending", "paused again", []string{"pause", "trending", "--note", "paused again"}},
		{"/runs", "triggered from the test", []string{"trigger", "charts.music", "--note", "triggered from the test"}},
	} {
		t.Run(c.path, func(t *testing.T) {
			b := newTab(t, w.host())
			b.visit(w.url+c.path, http.StatusOK)
			check.Equal(t, strings.Contains(b.text(), c.shows), false, "shown before")
			w.run(0, c.command...)
			b.appears(c.shows)
			b.clean(c.path)
		})
	}
}
