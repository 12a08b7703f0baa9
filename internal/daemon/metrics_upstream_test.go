package daemon

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// truth has an upstream report more than was charged on a budget of its own, a call
// observed, and it locked.
func (w *watched) truth() budget.Lock {
	w.t.Helper()
	b, err := budget.New(w.metered, budget.Spec{
		Name: "seen/main", Costs: map[string]budget.Cost{"get": {Units: 1}},
		Limits: []limit.Limit{{Name: "hour", Quota: 10, Limit: 10, Observe: true, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	both := map[string]*budget.Budget{"shop/main": w.b, "seen/main": b}
	w.m.admit(both, nil)
	w.m.take(both)
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
		`quotactl_limit_drift_units{budget="seen/main",limit="hour"} 7`,
		`quotactl_limit_drift_units{budget="shop/main",limit="daily"} 0`,
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
