package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// truth has an upstream report more than was charged, on a budget of its own. It also makes
// a call that only observe mode grants, and locks the limit.
func (w *watched) truth() budget.Lock {
	w.t.Helper()
	b := must.Get(budget.New(w.metered, budget.Spec{
		Name: "seen/main", Costs: map[string]budget.Cost{"get": {Units: 1}},
		Limits: []limit.Limit{
			{Name: "hour", Quota: 10, Limit: 10, Observe: true, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
			{Name: "auto", Quota: 1000, Headroom: 50, Auto: 50, Limit: 950, OutagePart: 60, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		},
	}))(w.t)
	both := map[string]*budget.Budget{"shop/main": w.b, "seen/main": b}
	w.m.admit(both, nil)
	w.m.take(both, nil)
	left := int64(3)
	must.Equal(w.t, must.Get(b.Report(w.t.Context(), budget.UpstreamReport{Limit: "hour", Remaining: &left}))(w.t).Added, 7)
	for range 4 {
		must.Get(b.Charge(w.t.Context(), budget.Call{Operation: "get"}))(w.t)
	}
	lock := must.Get(b.Lock(w.t.Context(), budget.LockOrder{Limit: "hour", Until: budget.Until{After: time.Minute}}))(w.t)
	return lock
}

func TestMetricsOfTheUpstream(t *testing.T) {
	w := watch(t, nil)
	lock := w.truth()
	must.Do(t, w.lockAll())
	must.Is(t, w.charge("get", 1), budget.ErrLocked, "a locked budget")
	w.has(
		`quotactl_observed_total{budget="seen/main",limit="hour"} 1`,
		`quotactl_drift_units_total{budget="seen/main",limit="hour"} 7`,
		`quotactl_limit_drift_units{budget="seen/main",limit="hour"} 7`,
		`quotactl_limit_drift_units{budget="shop/main",limit="daily"} 0`,
		`quotactl_limit_headroom_units{budget="seen/main",limit="auto"} 50`,
		`quotactl_limit_headroom_units{budget="seen/main",limit="hour"} 0`,
		`quotactl_limit_headroom_part_units{budget="seen/main",limit="auto",part="drift"} 0`,
		`quotactl_limit_headroom_part_units{budget="seen/main",limit="auto",part="outage"} 60`,
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
