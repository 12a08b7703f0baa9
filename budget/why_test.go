package budget_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A call within the guard of a reset counts in both periods. Why names what the next one
// keeps, if that alone keeps the call out.
func TestWhyAfterReset(t *testing.T) {
	now := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	window := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	window.Guard = (5 * time.Second).Microseconds()
	spec := budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 50}}, Limits: []limit.Limit{{
		Name: "day", Limit: 100, Counts: limit.CountUnits, Window: window,
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60, Lapse: (3 * time.Hour).Microseconds()}},
	}}}
	store := memstore.New(func() int64 { return now.UnixMicro() })
	b := must.Get(budget.New(store, spec, budget.WithNow(func() time.Time { return now })))(t)
	want := func(refused bool, available, short int64, after ...budget.Kept) {
		t.Helper()
		why := must.Get(b.Why(t.Context(), budget.Call{Operation: "op", Labels: budget.Labels{Job: "backfill"}}))(t)
		check.Equal(t, why.Refused != nil, refused, "refused at", now)
		check.Equal(t, why.Limits[0].Available, available, "available at", now)
		check.Equal(t, why.Limits[0].Short, short, "short at", now)
		check.EqualSlices(t, why.Limits[0].KeptAfterReset, after, "kept after the reset, at", now)
	}
	want(false, 100, 0) // nightly's guarantee has lapsed
	now = now.Add(2*time.Hour - 6*time.Second)
	want(false, 100, 0)
	now = now.Add(2 * time.Second)
	want(true, 100, 0, budget.Kept{Share: "nightly", Units: 60})
	now = now.Add(time.Hour)
	want(true, 40, 10) // the next period
}
