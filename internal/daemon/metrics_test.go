package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

// watchTimeout is the watched store's.
const watchTimeout = time.Minute

// watched is a budget on a metered store with its listener.
type watched struct {
	t     *testing.T
	b     *budget.Budget
	m     *metrics
	drain chan struct{}
	l     *listener

	metered *meteredStore
}

func watch(t *testing.T, store driver.Store, more ...limit.Limit) *watched {
	t.Helper()
	metered := &meteredStore{log: slog.New(slog.DiscardHandler)}
	if store == nil {
		metered.Backend = memstore.New(func() int64 { return time.Now().UnixMicro() })
	} else {
		metered.Backend = store.(interface {
			driver.Store
			driver.JobStore
		})
	}
	b := must.Get(budget.New(metered, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "export": {Units: 40}, "hit": {Units: 1, LeaseUnits: 20}}, Unknown: budget.Unknown{Allowed: true, Units: 1},
		Limits:  append([]limit.Limit{{Name: "daily", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}}, more...),
		Timeout: watchTimeout,
	}))(t)
	budgets := map[string]*budget.Budget{"shop/main": b}
	w := &watched{t: t, b: b, m: newMetrics(budgets, 100*time.Millisecond, "test"), drain: make(chan struct{})}
	metered.metrics, w.metered = w.m, metered
	w.l = &listener{metrics: w.m, budgets: func() map[string]*budget.Budget { return budgets }, drain: w.drain, timeout: watchTimeout, servers: &servers{}}
	w.l.servers.swap(serve.New(serve.Options{Budgets: []*budget.Budget{b}}))
	return w
}

func (w *watched) charge(operation string, units int64) error {
	_, err := w.b.Charge(w.t.Context(), budget.Call{Operation: operation, Units: &units})
	return err
}

// get sends a GET to the listener.
func (w *watched) get(path string) (int, string) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.l.handler().ServeHTTP(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

// has fails unless the scrape has each of the lines.
func (w *watched) has(lines ...string) {
	w.t.Helper()
	_, text := w.get("/metrics")
	for _, line := range lines {
		if !slices.Contains(strings.Split(text, "\n"), line) {
			w.t.Errorf("no line %s among\n%s", line, grep(text, "quotactl_"))
		}
	}
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// A near miss is a grant that leaves 5 % of the limit or less.
func TestNearMisses(t *testing.T) {
	for _, c := range []struct{ limit, before, far, near int64 }{
		{100, 90, 4, 1}, {140, 100, 32, 1}, {60, 50, 6, 1}, {19, 10, 8, 1}, {1, 0, 0, 1}, {1_000_000_000_000_000, 0, 949_999_999_999_999, 1},
	} {
		w := watch(t, nil)
		w.b = must.Get(budget.New(w.metered, budget.Spec{
			Name: "shop/main", Costs: map[string]budget.Cost{"few": {Units: 1}}, Timeout: watchTimeout,
			Limits: []limit.Limit{{Name: "least", Limit: c.limit, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
		}))(t)
		must.Do(t, w.charge("few", c.before+c.far))
		_, text := w.get("/metrics")
		check.Equal(t, strings.Contains(text, "quotactl_near_misses_total{"), false, "a near miss with more than 5 % left", c)
		must.Do(t, w.charge("few", c.near))
		w.has(`quotactl_near_misses_total{budget="shop/main",limit="least"} 1`)
	}
}

func TestMetrics(t *testing.T) {
	w := watch(t, nil)
	for _, c := range []struct {
		operation string
		units     int64
		want      error
	}{{"export", 40, nil}, {"export", 40, nil}, {"export", 40, budget.ErrExhausted}, {"get", 16, nil}, {"get", 101, budget.ErrNeverFits}, {"new.operation", 1, nil}} {
		must.Is(t, w.charge(c.operation, c.units), c.want, c)
	}
	must.Get(w.b.Would(t.Context(), budget.Call{Operation: "get"}, 0))(t) // no charge, and none counted
	job := &jobs.Job{Name: "pull"}
	w.m.TickStarted(job, 70*time.Millisecond)
	w.m.RunEnded(job, "US", jobs.Succeeded)
	w.m.RunEnded(job, "DE", jobs.Exhausted)
	w.m.PassEnded(job, jobs.Exhausted)
	w.has(
		`quotactl_decisions_total{budget="shop/main",operation="export",result="granted",source="store"} 2`,
		`quotactl_decisions_total{budget="shop/main",operation="export",result="exhausted",source="store"} 1`,
		`quotactl_decisions_total{budget="shop/main",operation="get",result="never_fits",source="store"} 1`,
		`quotactl_units_total{budget="shop/main",operation="export"} 80`,
		`quotactl_units_total{budget="shop/main",operation="get"} 16`,
		`quotactl_units_total{budget="shop/main",operation="other"} 1`,
		`quotactl_near_misses_total{budget="shop/main",limit="daily"} 2`, // 4 and 3 of 100 left
		`quotactl_limit_used_units{budget="shop/main",limit="daily"} 97`,
		`quotactl_limit_limit_units{budget="shop/main",limit="daily"} 100`,
		`quotactl_limit_remaining_units{budget="shop/main",limit="daily"} 3`,
		`quotactl_budget_left_ratio{budget="shop/main",limit="daily"} 0.03`,
		`quotactl_store_seconds_count{call="decide"} 7`,
		`quotactl_breaker_open 0`,
		`quotactl_passes_total{job="pull",outcome="exhausted"} 1`,
		`quotactl_runs_total{job="pull",outcome="exhausted",region="DE"} 1`,
		`quotactl_runs_total{job="pull",outcome="succeeded",region="US"} 1`,
		`quotactl_tick_lateness_seconds_bucket{job="pull",le="0.05"} 0`,
		`quotactl_tick_lateness_seconds_bucket{job="pull",le="0.1"} 1`,
	)
}

// A thousand operations without a price are one series, and no id is a label.
func TestMetricsAreBounded(t *testing.T) {
	w := watch(t, nil)
	for i := range 1000 {
		_ = w.charge(fmt.Sprint("op", i), 0) // granted or not, it is counted
	}
	_, text := w.get("/metrics")
	if n := strings.Count(grep(text, "quotactl_decisions_total{"), "\n"); n != 1 {
		t.Errorf("%d series of decisions, want one:\n%s", n, grep(text, "quotactl_decisions_total"))
	}
}
