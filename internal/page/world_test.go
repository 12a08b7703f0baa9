package page

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

var discard = slog.New(slog.DiscardHandler)

// evening is when the tests' numbers are read.
var evening = time.Date(2026, 11, 27, 21, 14, 5, 0, time.UTC)

const worldConfig = `
[upstream.up.costs]
get = 10
list = 1
[upstream.up.limit.daily]
quota = 1_100
headroom = 100
calendar = "day"
timezone = "UTC"
[upstream.up.limit.rolling]
limit = 3_000
window = "24h"
operations = ["get"]
[upstream.up.limit.burst]
limit = 2_000
refill = "1/s"
[upstream.up.share.nightly]
jobs = ["nightly"]
units = 200
limits = ["daily"]
[upstream.up.credential.key]
[upstream.up.credential.spare]
[job.nightly]
budget = "up/key"
schedule = "0 2 * * *"
regions = ["US", "GB"]
needs = { get = 30 }
command = ["true"]
[job.hourly]
budget = "up/key"
schedule = "0 * * * *"
needs = { list = 5 }
command = ["true"]
[job.spare]
budget = "up/spare"
schedule = "0 */6 * * *"
command = ["true"]
[alert.team]
url_env = "HOOK"
as = "slack"
on = ["exhausted", "used 80%"]
`

// world is a site with budgets, jobs and what became of them, at a frozen instant.
type world struct {
	*Site
	store   *memstore.Store
	key     *budget.Budget
	reader  *look.Reader
	visitor Visitor
	now     time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{now: evening}
	w.store = memstore.New(func() int64 { return w.now.UnixMicro() })
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(worldConfig), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	list := jobs.Load(cfg)
	must.Do(t, cfg.Err())
	now := func() time.Time { return w.now }
	w.reader = &look.Reader{Config: cfg, Jobs: list, Store: w.store, URL: "memory", Now: now, Log: discard, Open: func(name string) (*budget.Budget, error) {
		return open.BudgetOn(w.store, cfg, cfg.Store.URL, name, budget.WithNow(now))
	}}
	w.key = must.Get(w.reader.Open("up/key"))(t)
	w.Site = New(Options{Reader: func() *look.Reader { return w.reader }, Now: now, Visitor: func(*http.Request) Visitor { return w.visitor }, Version: "1.2.3"})
	t.Cleanup(w.shelf.end)
	return w
}

// lives has charges made, a run fail with a text, and the spare budget locked with it.
func (w *world) lives(t testing.TB, text string) {
	t.Helper()
	for range 12 {
		must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "get", Labels: budget.Labels{Job: "nightly", Region: "US"}}))(t)
	}
	must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "list", Labels: budget.Labels{Job: "hourly"}}))(t)
	at := evening.Add(-19 * time.Hour)
	record := jobs.Record{
		Tick: jobs.Instant{Time: at}, Kind: jobs.Triggered, Outcome: jobs.Failed, Reason: "exit 3", Started: jobs.Instant{Time: at.Add(time.Second)}, Ended: jobs.Instant{Time: at.Add(time.Minute)},
		Host: "in process 1 on here", Units: 120, Note: text, Request: "r1", Error: text, Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Failed, Reason: text, Started: jobs.Instant{Time: at.Add(time.Second)}, Ended: jobs.Instant{Time: at.Add(time.Minute)}, Units: 120, Pages: 12, Error: text, Log: []string{text, "the last line"}},
			{Region: "GB", Outcome: jobs.Skipped, Reason: jobs.ReasonExhausted},
		},
	}
	made := must.Get(json.Marshal(record))(t)
	who := map[string]any{"at": evening, "by": text, "note": text}
	document := map[string]any{
		"last": json.RawMessage(made), "pause": who,
		"requests": []map[string]any{{"id": "q1", "at": evening, "by": text, "note": text, "regions": []string{"US"}}},
		"active":   []map[string]any{{"holder": "1/here/x", "tick": evening.UnixMicro(), "kind": "trigger", "since": evening.UnixMicro(), "until": evening.Add(time.Hour).UnixMicro(), "request": map[string]any{"id": "q2", "at": evening, "by": text, "note": text}}},
	}
	w.job(t, "nightly", document, driver.JobRecord{At: at.UnixMicro(), ID: "1", Text: made})
	w.job(t, "@alerts/team", map[string]any{
		"since":      evening.UnixMicro(),
		"situations": map[string]any{"exhausted|up/spare|daily|": map[string]any{"open": true, "begun": evening.UnixMicro(), "changed": evening.UnixMicro()}},
		"messages":   []map[string]any{{"id": "m1", "text": text, "key": "exhausted|up/spare|daily|", "since": evening.UnixMicro(), "tries": 2, "error": text}},
	})
	spare := must.Get(w.reader.Open("up/spare"))(t)
	must.Get(spare.Lock(t.Context(), budget.LockOrder{Limit: "daily", Until: budget.Until{After: time.Hour}, Why: text, ByHand: true}))(t)
	w.visitor.Said = text
}

func (w *world) job(t testing.TB, name string, document map[string]any, records ...driver.JobRecord) {
	t.Helper()
	if !must.Get(w.store.SwapJob(t.Context(), driver.JobSwap{Job: name, Text: must.Get(json.Marshal(document))(t), Records: records}))(t) {
		t.Fatal("the document was there")
	}
}

// everyPage are the addresses of all pages, with what they show.
var everyPage = []string{
	"/", "/budget?name=up/key", "/budget?name=up%2Fspare", "/jobs", "/jobs?q=night", "/job?name=nightly", "/job?name=hourly", "/runs", "/runs?job=nightly&outcome=failed", "/runs?outcome=errors",
	"/plan", "/plan?for=6h", "/why", "/why?budget=up/key&operation=get&job=hourly", "/why?budget=up/spare&operation=get", "/alerts",
}

// answer is what a page answers; a page that is being computed is asked again.
func (w *world) answer(t testing.TB, path string) *httptest.ResponseRecorder {
	t.Helper()
	for {
		got := httptest.NewRecorder()
		w.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		if !strings.Contains(got.Body.String(), "Numbers are being read") {
			return got
		}
		w.shelf.hold.Wait()
	}
}

// page is the tree of a page.
func (w *world) page(t testing.TB, path string) *element {
	t.Helper()
	got := w.answer(t, path)
	must.Equal(t, got.Code, http.StatusOK, path)
	return parse(t, path, got.Body.String())
}

// element is an element of a page, or with an empty name a text.
type element struct {
	name     string
	text     string
	attrs    map[string]string
	children []*element
}

// parse reads a page, strictly: each element is closed, each attribute is quoted.
func parse(t testing.TB, path, text string) *element {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	decoder.Entity = map[string]string{"nbsp": " "}
	root := &element{name: "#"}
	stack := []*element{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			must.Equal(t, len(stack), 1, path, "open elements at the end")
			return root
		}
		if err != nil {
			t.Fatalf("%s: %v in\n%s", path, err, text)
		}
		top := stack[len(stack)-1]
		switch token := token.(type) {
		case xml.StartElement:
			one := &element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				one.attrs[a.Name.Local] = a.Value
			}
			top.children = append(top.children, one)
			stack = append(stack, one)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.children = append(top.children, &element{text: string(token)})
		}
	}
}

// all are the elements below one, in their order, that keep says yes to.
func (e *element) all(keep func(*element) bool) (list []*element) {
	for _, child := range e.children {
		if child.name != "" && keep(child) {
			list = append(list, child)
		}
		list = append(list, child.all(keep)...)
	}
	return list
}

func (e *element) named(name string) []*element {
	return e.all(func(one *element) bool { return one.name == name })
}

// words is all text of an element, with single spaces.
func (e *element) words() string { return strings.Join(strings.Fields(e.content()), " ") }

func (e *element) content() string {
	text := e.text
	for _, child := range e.children {
		text += child.content()
	}
	if !slices.Contains([]string{"", "bdi", "time", "span", "a", "strong"}, e.name) {
		return " " + text + " "
	}
	return text
}
