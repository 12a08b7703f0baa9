package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

var (
	metricName = regexp.MustCompile(`quotactl_[a-z_]+`)
	labelUse   = regexp.MustCompile(`(quotactl_[a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z]+)\s*(?:=~|!~|!=|=)`)
	byLabels   = regexp.MustCompile(`by \(([^)]*)\)`)
	// A unit, a count, or what is 1 or 0, which has no unit.
	unitName = regexp.MustCompile(`_(units|seconds|bytes|ratio|total|entries|info|breaker_open|job_paused|connections)$`)
	// What counts the charges of one process alone.
	ownCharges = regexp.MustCompile(`quotactl_(decisions|units|leased_takes|leased_units|near_misses|observed|drift_units)_total`)
)

// The dashboard and the alerts use only metrics and labels that exist, and docs/metrics.md
// has all of them.
func TestMetricNames(t *testing.T) {
	shared := limit.Limit{
		Name: "shared", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 10}},
	}
	w := watch(t, nil, shared)
	must.Get(w.metered.Decide(t.Context(), driver.Batch{
		Budget: "shop/main", Now: time.Now().UnixMicro(), Limits: w.b.Spec().Limits, Table: driver.ShareTable{Host: "elsewhere", Digest: limit.NoShares},
	}))(t)
	for _, err := range []error{w.charge("get", 97), w.charge("get", 1)} {
		must.Do(t, err)
	}
	w.truth()
	job := &jobs.Job{Name: "pull"}
	w.m.leased("shop/main", "get", 1)
	w.m.TickStarted(job, 0)
	w.m.RunEnded(job, "US", jobs.Failed)
	w.m.PassEnded(job, jobs.Failed)
	w.m.UpstreamAnswered(&jobs.Job{Name: "pull", Budget: "shop/main"}, "get", time.Second)
	w.m.limits.store = "sqlite:" + os.Args[0]
	w.m.top.follow(func(ctx context.Context, _ int) ([]budget.Status, error) {
		status, err := w.b.Status(ctx)
		status.Budget = "shop/acme"
		return []budget.Status{status}, err
	})
	w.get("/metrics")
	w.refusedElsewhere("nightly", "get", 1)
	must.Get(driver.Apply(t.Context(), w.metered.Backend, driver.Refusals{Budget: "shop/main", Now: time.Now().UnixMicro(), Counts: []driver.RefusalCount{
		{Hour: driver.HourOf(time.Now().UnixMicro()), Limit: "daily", Operation: "get", Waited: 4},
	}}))(t)
	w.m.alerted("team", alert.Failed)
	w.m.pinged("pull", alert.Failed)
	w.m.ResponseUnread(job, budgethttp.Unread{Operation: "get", What: budgethttp.UnreadActual})
	w.succeeded()
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
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md")))(t)
	for name := range labels {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !unitName.MatchString(base) {
			t.Errorf("%s does not end in its unit", base)
		}
		check.Contains(t, string(page), "`"+base+"`", "docs/metrics.md does not tell of", base)
	}
}

// dashboardExprs are the queries of the dashboard's panels.
func dashboardExprs(t *testing.T) (list []string) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", "dashboard.json")))(t)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must.Do(t, json.Unmarshal(text, &dashboard))
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
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", "alerts.yml")))(t)
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

// Alerts fire whichever process charges: their conditions use the ledger as well as the
// daemon's own decisions. While the store is out of reach there is no ledger, but the
// breaker is the whole host's.
func TestAlertsHearOfEveryProcess(t *testing.T) {
	for _, expr := range alertExprs(t) {
		alone := ownCharges.MatchString(expr) && !strings.Contains(expr, "quotactl_limit_") && !strings.Contains(expr, "quotactl_budget_")
		if alone && !strings.Contains(expr, `source="allowance"`) {
			t.Errorf("%s: only the daemon's own charges are counted", expr)
		}
	}
	w := watch(t, nil)
	other, err := budget.New(w.metered.Backend, w.b.Spec()) // as the command line's: no metric counts its decisions
	must.Do(t, err)
	units := int64(100)
	must.Get(other.Charge(t.Context(), budget.Call{Operation: "get", Units: &units}))(t)
	must.Is(t, check.Err(other.Charge(t.Context(), budget.Call{Operation: "get"})), budget.ErrExhausted)
	_, page := w.get("/metrics")
	const nothingLeft = `quotactl_budget_left_ratio{budget="shop/main",limit="daily"} 0`
	if !strings.Contains(page, nothingLeft) || strings.Contains(page, `result="exhausted"`) {
		t.Errorf("the page has\n%s", grep(page, "quotactl_"))
	}
	exhausted := alertExprs(t)[0]
	if !strings.HasPrefix(exhausted, "min by (budget) (quotactl_budget_left_ratio) <= 0 or ") {
		t.Errorf("%s does not fire for %s", exhausted, nothingLeft)
	}
}
