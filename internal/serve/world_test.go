package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/alert"
	answers "github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

// world is a Server on a store in memory. Its budgets are shop/main, which is
// open, and all others of shop.
type world struct {
	t     *testing.T
	store *rigged
	spec  budget.Spec
	*serve.Server
}

// rigged is a store that answers as a test wants, once.
type rigged struct {
	*memstore.Store
	decide func(context.Context, driver.Batch) (driver.Decisions, error)
	finish func() (driver.Finished, error)
	look   func() (driver.View, error)
}

func (r *rigged) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if r.decide != nil {
		return r.decide(ctx, b)
	}
	return r.Store.Decide(ctx, b)
}

func (r *rigged) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	if r.finish != nil {
		done, err := r.finish()
		return []driver.Finished{done}, err
	}
	return r.Store.Finish(ctx, f)
}

func (r *rigged) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	if r.look != nil {
		return r.look()
	}
	return r.Store.Look(ctx, l)
}

// newWorld has limits of 100 units a day and of 50 calls of get an hour, and a divided one
// that nothing reaches.
func newWorld(t *testing.T, o serve.Options) *world {
	t.Helper()
	w := &world{t: t, store: &rigged{Store: memstore.New(func() int64 { return time.Now().UnixMicro() })}}
	w.spec = budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "export": {Units: 40}, "huge": {Units: 101}, "hit": {Units: 1, LeaseUnits: 20}},
		Limits: []limit.Limit{
			{Name: "daily", Quota: 120, Headroom: 20, Auto: 20, Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
			{Name: "gets", Limit: 50, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), Operations: []string{"get"}},
			{
				Name: "divided", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)),
				Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 10, Lapse: time.Hour.Microseconds()}},
			},
		},
		Timeout: time.Minute,
	}
	o.Budgets = []*budget.Budget{w.open("shop/main")}
	o.Open = w.openNamed
	o.Overview = w.overview
	w.Server = serve.New(o)
	return w
}

// overview has the budgets, one job in each state, and an alert.
func (w *world) overview(ctx context.Context, names []string) (answers.Overview, error) {
	if len(names) == 0 {
		names = []string{"shop/main"}
	}
	var list []budget.Status
	for _, name := range names {
		b, err := w.openNamed(name)
		if err != nil {
			return answers.Overview{}, err
		}
		status, err := b.Rated(ctx)
		if err != nil {
			return answers.Overview{}, err
		}
		list = append(list, status)
	}
	now := jobs.InstantOf(time.Now().UnixMicro())
	idle := answers.Job{Job: &jobs.Job{Name: "idle", Budget: "shop/main"}}
	busy := answers.Job{Job: &jobs.Job{Name: "busy", Budget: "shop/main"}, NextTick: time.Now()}
	busy.Deferred = []jobs.DeferredPass{{Tick: now, Part: 2, At: now, Regions: []string{}}}
	busy.Pause, busy.Active, busy.Last = &jobs.Pause{Note: "n", By: "b", At: now}, []jobs.ActivePass{{Tick: now}}, json.RawMessage(`{"tick":null}`)
	health := []alert.Health{{Alert: "ops"}, {Alert: "late", Since: &now, LastGivenUp: &now}}
	return answers.NewOverview(time.Now(), "memory", list, []answers.Job{idle, busy}, []jobs.Daemon{{Host: "in process 1 on web1", Since: now}}, health, nil), nil
}

func (w *world) openNamed(name string) (*budget.Budget, error) {
	if !driver.ValidBudget(name) || !strings.HasPrefix(name, "shop/") {
		return nil, fmt.Errorf("%w %q: there are those of shop", budget.ErrUnknownBudget, name)
	}
	return w.open(name), nil
}

func (w *world) open(name string) *budget.Budget {
	spec := w.spec
	spec.Name = name
	b := must.Get(budget.New(w.store, spec))(w.t)
	return b
}

// answer is what a request got.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (w *world) request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:9090"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (w *world) do(r *http.Request) answer {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, r)
	got := answer{t: w.t, status: recorder.Code, header: recorder.Header(), text: recorder.Body.String()}
	if err := json.Unmarshal(recorder.Body.Bytes(), &got.body); err != nil {
		w.t.Fatalf("%s %s: %d %s: %v", r.Method, r.URL, got.status, got.text, err)
	}
	return got
}

func (w *world) post(path, body string) answer {
	w.t.Helper()
	return w.do(w.request(http.MethodPost, path, body))
}

func (w *world) get(path string) answer {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, path, ""))
}

// is checks the status and members of the body of an answer.
func (a answer) is(status int, members ...any) {
	a.t.Helper()
	must.Equal(a.t, a.status, status, "status", a.text)
	for i := 0; i < len(members); i += 2 {
		name := members[i].(string)
		got, there := a.body[name]
		if want := members[i+1]; !there || fmt.Sprint(got) != fmt.Sprint(want) {
			a.t.Errorf("%s is %v, want %v: %s", name, got, want, a.text)
		}
	}
}

// has checks header fields of an answer.
func (a answer) has(fields ...string) {
	a.t.Helper()
	for i := 0; i < len(fields); i += 2 {
		check.Equal(a.t, strings.Join(a.header.Values(fields[i]), " | "), fields[i+1], fields[i])
	}
}

// sleep advances the fake time of a bubble.
func sleep(d time.Duration) { <-time.After(d) }
