package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/serve"
	"github.com/quotactl/quotactl/jobs"
)

// watchTimeout is the watched store's.
const watchTimeout = 500 * time.Millisecond

// watched is a budget on a metered store with its listener.
type watched struct {
	t     *testing.T
	b     *budget.Budget
	m     *metrics
	drain chan struct{}
	l     *listener

	metered *meteredStore
}

func watch(t *testing.T, store budget.Store) *watched {
	t.Helper()
	metered := &meteredStore{log: slog.New(slog.DiscardHandler)}
	if store == nil {
		metered.Backend = memstore.New(func() int64 { return time.Now().UnixMicro() })
	} else {
		metered.Backend = store.(interface {
			budget.Store
			budget.JobStore
		})
	}
	b, err := budget.New(metered, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "export": {Units: 40}}, Unknown: budget.Unknown{Allowed: true, Units: 1},
		Limits:  []budget.Limit{{Name: "daily", Limit: 100, Counts: budget.CountUnits, Window: budget.RollingWindow(24 * time.Hour)}},
		Timeout: watchTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]*budget.Budget{"shop/main": b}
	w := &watched{t: t, b: b, m: newMetrics(budgets, 100*time.Millisecond), drain: make(chan struct{})}
	metered.metrics, w.metered = w.m, metered
	w.l = &listener{metrics: w.m, budgets: budgets, drain: w.drain, timeout: watchTimeout, decisions: serve.New(serve.Options{Budgets: []*budget.Budget{b}})}
	return w
}

func (w *watched) charge(operation string, units int64) error {
	_, err := w.b.Charge(w.t.Context(), budget.Call{Operation: operation, Units: &units})
	return err
}

// get asks the listener.
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

func TestMetrics(t *testing.T) {
	w := watch(t, nil)
	for _, c := range []struct {
		operation string
		units     int64
		want      error
	}{{"export", 40, nil}, {"export", 40, nil}, {"export", 40, budget.ErrExhausted}, {"get", 16, nil}, {"get", 101, budget.ErrNeverFits}, {"new.operation", 1, nil}} {
		if err := w.charge(c.operation, c.units); !errors.Is(err, c.want) {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	if _, err := w.b.Would(t.Context(), budget.Call{Operation: "get"}, 0); err != nil { // no charge, and none counted
		t.Fatal(err)
	}
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
		`quotactl_limit_used{budget="shop/main",limit="daily"} 97`,
		`quotactl_limit_limit{budget="shop/main",limit="daily"} 100`,
		`quotactl_limit_remaining{budget="shop/main",limit="daily"} 3`,
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

// away is a store that does not answer.
type away struct{ *memstore.Store }

func (away) Decide(ctx context.Context, _ budget.Batch) (budget.Decisions, error) {
	<-ctx.Done()
	return budget.Decisions{}, fmt.Errorf("%w: %w", budget.ErrUnavailable, ctx.Err())
}

func (away) Look(ctx context.Context, _ budget.Look) (budget.View, error) {
	<-ctx.Done()
	return budget.View{}, fmt.Errorf("%w: %w", budget.ErrUnavailable, ctx.Err())
}

// A store that hangs does not hang a scrape, and is told of.
func TestMetricsOfStoreAway(t *testing.T) {
	w := watch(t, away{memstore.New(func() int64 { return 0 })})
	if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || text != "the store does not serve: unavailable\n" {
		t.Errorf("readyz: %d %q", code, text)
	}
	if err := w.charge("get", 1); !errors.Is(err, budget.ErrUnavailable) {
		t.Fatal(err)
	}
	w.has("quotactl_breaker_open 1", `quotactl_decisions_total{budget="shop/main",operation="get",result="unavailable",source="none"} 1`)
	if code, _ := w.get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d: a store out of reach is no reason to start the process anew", code)
	}
}

// broken is a store that does not answer while it is broken.
type broken struct {
	open.Backend
	is atomic.Bool
}

func (b *broken) Decide(ctx context.Context, batch budget.Batch) (budget.Decisions, error) {
	if b.is.Load() {
		return budget.Decisions{}, budget.ErrUnavailable
	}
	return b.Backend.Decide(ctx, batch)
}

func (b *broken) Look(ctx context.Context, look budget.Look) (budget.View, error) {
	if b.is.Load() {
		return budget.View{}, budget.ErrUnavailable
	}
	return b.Backend.Look(ctx, look)
}

// host is a store with the host's side of its outages, as open.Host makes it.
type host struct {
	*outage.Store
	budget.JobStore
}

// What the allowance decides is told apart, and so is that the store is away
// although calls go on.
func TestMetricsOfAllowance(t *testing.T) {
	store := &broken{Backend: memstore.New(func() int64 { return time.Now().UnixMicro() })}
	hosted := host{outage.New(store, outage.Options{Dir: t.TempDir(), Allowance: 10, Timeout: time.Second, Interval: time.Hour}), store}
	defer func() {
		if err := hosted.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := watch(t, hosted)
	charge := func(policy budget.Policy, want error) {
		t.Helper()
		units := int64(4)
		if _, err := w.b.Charge(t.Context(), budget.Call{Operation: "get", Units: &units, OnStoreError: policy}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	charge(budget.Open, nil)
	w.has("quotactl_breaker_open 0", `quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="store"} 1`)
	if code, _ := w.get("/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d", code)
	}
	store.is.Store(true)
	charge(budget.Open, nil)
	charge(budget.Open, nil)
	charge(budget.Open, budget.ErrUnavailable) // the allowance is spent
	charge(budget.Closed, budget.ErrUnavailable)
	w.has("quotactl_breaker_open 1",
		`quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="allowance"} 2`,
		`quotactl_decisions_total{budget="shop/main",operation="get",result="unavailable",source="none"} 2`,
		`quotactl_units_total{budget="shop/main",operation="get"} 12`,
	)
	charge(budget.Open, budget.ErrUnavailable) // the allowance is spent
	if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || text != "the store does not serve: unavailable\n" {
		t.Errorf("readyz: %d %q", code, text)
	}
}

func TestHealth(t *testing.T) {
	w := watch(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text := w.get(path); code != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	w.m.pulse.beaten = time.Now().Add(-pulseLives - time.Minute)
	if code, text := w.get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "4m") {
		t.Errorf("healthz of a scheduler that stands still: %d %q", code, text)
	}
	w.m.Looked()
	if code, _ := w.get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz once it goes on: %d", code)
	}
	close(w.drain)
	if code, text := w.get("/readyz"); code != http.StatusServiceUnavailable || text != "draining: told to stop\n" {
		t.Errorf("readyz while draining: %d %q", code, text)
	}
	if code, _ := w.get("/elsewhere"); code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", code)
	}
}

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{
		"9090": "127.0.0.1:9090", ":9090": "127.0.0.1:9090", "0.0.0.0:9090": "0.0.0.0:9090", "localhost:0": "localhost:0", "[::1]:80": "[::1]:80", "host:": "", "a:b:c": "",
	} {
		got, err := listenAddress(text)
		if got != want || (err == nil) != (want != "") || err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// It listens until it is stopped, and then no more.
func TestServe(t *testing.T) {
	w := watch(t, nil)
	var log strings.Builder
	a := &app{stderr: &log, logLevel: "info", logFormat: "text"}
	called, stop, err := w.l.serve(t.Context(), &endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, a)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String())[1]
	if called != address {
		t.Errorf("called %q, the log says %q", called, address)
	}
	get := func() (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/healthz", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	if body, err := get(); err != nil || body != "ok\n" {
		t.Fatalf("%q, %v", body, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); err == nil {
		t.Error("it still answers")
	}
}

var (
	metricName = regexp.MustCompile(`quotactl_[a-z_]+`)
	labelUse   = regexp.MustCompile(`(quotactl_[a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z]+)\s*(?:=~|!~|!=|=)`)
	byLabels   = regexp.MustCompile(`by \(([^)]*)\)`)
)

// The dashboard and the alerts ask for metrics and labels that there are, and the
// page on metrics tells all of them.
func TestMetricNames(t *testing.T) {
	w := watch(t, nil)
	for _, err := range []error{w.charge("get", 97), w.charge("get", 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.truth()
	job := &jobs.Job{Name: "pull"}
	w.m.TickStarted(job, 0)
	w.m.RunEnded(job, "US", jobs.Failed)
	w.m.PassEnded(job, jobs.Failed)
	_, text := w.get("/metrics")
	labels := map[string][]string{} // by metric
	for line := range strings.Lines(grep(text, "quotactl_")) {
		name := metricName.FindString(line)
		labels[name] = []string{"instance", "job"} // what a scrape adds
		if inside := labelUse.FindStringSubmatch(line); inside != nil {
			for _, l := range labelName.FindAllStringSubmatch(inside[2], -1) {
				labels[name] = append(labels[name], l[1])
			}
		}
	}
	if len(labels) < 15 {
		t.Fatalf("only %d metrics: %v", len(labels), labels)
	}
	asked := map[string]bool{}
	for _, expr := range append(dashboardExprs(t), alertExprs(t)...) {
		known := []string{}
		for _, name := range metricName.FindAllString(expr, -1) {
			asked[name] = true
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", expr, name)
			}
			known = append(known, labels[name]...)
		}
		used := byLabels.FindStringSubmatch(expr)
		var names []string
		if used != nil {
			names = strings.Split(used[1], ", ")
		}
		for _, inside := range labelUse.FindAllStringSubmatch(expr, -1) {
			for _, l := range labelName.FindAllStringSubmatch(inside[2], -1) {
				names = append(names, l[1])
			}
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no label %s", expr, name)
			}
		}
	}
	if len(asked) < 10 {
		t.Errorf("dashboard and alerts ask for %d metrics only: %v", len(asked), asked)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range labels {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !strings.Contains(string(page), "`"+base+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", base)
		}
	}
}

// dashboardExprs are the queries of the dashboard's panels.
func dashboardExprs(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "grafana", "quotactl.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		if panel.Title == "" || len(panel.Targets) == 0 {
			t.Errorf("a panel shows nothing: %+v", panel)
		}
		for _, target := range panel.Targets {
			list = append(list, target.Expr)
		}
	}
	return list
}

// alertExprs are the conditions of the alerts.
func alertExprs(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			list = append(list, expr)
		}
	}
	if n := strings.Count(string(text), "- alert:"); n != len(list) {
		t.Errorf("%d alerts have %d conditions", n, len(list))
	}
	return list
}

// truth has an upstream report more than was charged on a budget of its own, a call
// observed, and it locked.
func (w *watched) truth() budget.Lock {
	w.t.Helper()
	b, err := budget.New(w.metered, budget.Spec{
		Name: "seen/main", Costs: map[string]budget.Cost{"get": {Units: 1}},
		Limits: []budget.Limit{{Name: "hour", Quota: 10, Limit: 10, Observe: true, Counts: budget.CountUnits, Window: budget.RollingWindow(time.Hour)}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.l.budgets["seen/main"] = b // what a scrape reads too
	w.m.known["seen/main"] = map[string]bool{"get": true}
	left := int64(3)
	if drift, err := b.Report(w.t.Context(), budget.UpstreamReport{Limit: "hour", Remaining: &left}); err != nil || drift.Added != 7 {
		w.t.Fatalf("%+v, %v", drift, err)
	}
	for range 4 {
		if _, err := b.Charge(w.t.Context(), budget.Call{Operation: "get"}); err != nil {
			w.t.Fatal(err)
		}
	}
	lock, err := b.Lock(w.t.Context(), budget.LockOrder{Limit: "hour", Until: budget.Until{After: time.Minute}})
	if err != nil {
		w.t.Fatal(err)
	}
	return lock
}

func TestMetricsOfTheUpstream(t *testing.T) {
	w := watch(t, nil)
	lock := w.truth()
	if err := w.lockAll(); err != nil {
		t.Fatal(err)
	}
	if err := w.charge("get", 1); !errors.Is(err, budget.ErrLocked) {
		t.Fatalf("a locked budget: %v", err)
	}
	w.has(
		`quotactl_observed_total{budget="seen/main",limit="hour"} 1`,
		`quotactl_drift_units_total{budget="seen/main",limit="hour"} 7`,
		`quotactl_limit_drift{budget="seen/main",limit="hour"} 7`,
		`quotactl_limit_drift{budget="shop/main",limit="daily"} 0`,
		fmt.Sprintf(`quotactl_limit_locked_until_seconds{budget="seen/main",limit="hour"} %v`, float64(lock.Until.UnixMicro())/1e6),
		`quotactl_decisions_total{budget="seen/main",operation="get",result="granted",source="store"} 4`,
		`quotactl_decisions_total{budget="shop/main",operation="get",result="locked",source="store"} 1`,
		`quotactl_store_seconds_count{call="lock"} 2`,
		`quotactl_store_seconds_count{call="report"} 1`,
	)
}

func (w *watched) lockAll() error {
	_, err := w.b.Lock(w.t.Context(), budget.LockOrder{Until: budget.Until{After: time.Minute}})
	return err
}
