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
	ahead := must.Get(budget.New(store, spec, budget.WithNow(func() time.Time { return now.Add(3 * time.Second) })))(t)
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
	b, same := ahead, b // whose charges count from 3 s before the reset
	want(true, 100, 0, budget.Kept{Share: "nightly", Units: 60})
	b = same
	now = now.Add(2 * time.Second)
	want(true, 100, 0, budget.Kept{Share: "nightly", Units: 60})
	now = now.Add(time.Hour)
	want(true, 40, 10) // the next period
}

// A call that never fits because of what is guaranteed to others says so.
func TestNeverFitsBesideGuarantees(t *testing.T) {
	store := memstore.New(nil)
	b := must.Get(budget.New(store, budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 50}}, Limits: []limit.Limit{{
		Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60}},
	}}}))(t)
	_, err := b.Charge(t.Context(), budget.Call{Operation: "op", Labels: budget.Labels{Job: "backfill"}})
	must.Is(t, err, budget.ErrNeverFits)
	want := "charge up/key1 op (50 units): can never fit: units and what is guaranteed to others (60 are kept for nightly) exceed limit hour; guarantee less, raise the limit, put the job in a share or ask for fewer units"
	check.Equal(t, err.Error(), want, "error")
	err = b.Room(t.Context(), budget.Needs{"op": 1, "": 1}, budget.Call{})
	must.Is(t, err, budget.ErrNeverFits)
	want = "charge up/key1 op (51 units): can never fit: units and what is guaranteed to others (60 are kept for nightly) exceed limit hour; guarantee less, raise the limit, put the job in a share or ask for fewer units"
	check.Equal(t, err.Error(), want, "error of a look")
	units := int64(101)
	_, err = b.Charge(t.Context(), budget.Call{Operation: "op", Units: &units})
	check.Equal(t, err.Error(), "charge up/key1 op (101 units): can never fit: the units exceed limit hour; raise the limit or ask for fewer units", "error of a call larger than the limit")
}
