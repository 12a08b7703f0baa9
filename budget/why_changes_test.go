package budget_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// busy is a store on which others are at work while Why asks.
type busy struct {
	driver.Store
	decided, read func()
	reads         int
}

func (s *busy) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	answer, err := s.Store.Decide(ctx, b)
	if len(b.Items) == 1 && b.Items[0].DryRun && s.decided != nil {
		s.decided()
	}
	return answer, err
}

func (s *busy) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	s.reads++
	if s.read != nil {
		s.read()
	}
	return s.Store.Export(ctx, export, to)
}

// worldOfWhy is a budget of 1000 units an hour on a busy store, and another on the same ledger.
func worldOfWhy(t *testing.T) (why *budget.Budget, other *budget.Budget, store *busy, now *time.Time) {
	now = new(time.Time)
	*now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	inner := memstore.New(func() int64 { return now.UnixMicro() })
	store = &busy{Store: inner}
	spec := budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 5}}, Limits: []limit.Limit{{
		Name: "hour", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
	}}}
	open := func(s driver.Store) *budget.Budget {
		return must.Get(budget.New(s, spec, budget.WithNow(func() time.Time { return *now })))(t)
	}
	return open(store), open(inner), store, now
}

// What Why says a call would get, what is used and who used it are of one state of the ledger,
// though others charge and settle while it asks. If they never stop, it says so.
func TestWhyWhileOthersCharge(t *testing.T) {
	t.Parallel()
	b, other, store, now := worldOfWhy(t)
	ask := func() budget.Why {
		t.Helper()
		store.reads = 0
		return must.Get(b.Why(t.Context(), budget.Call{Operation: "op"}))(t)
	}
	charge := func() {
		must.Get(other.Charge(t.Context(), budget.Call{Operation: "op", Labels: budget.Labels{Job: "other"}}))(t)
	}
	n := 0
	for range 198 {
		charge()
	}
	store.decided = func() {
		if n++; n <= 2 {
			charge()
		}
	}
	why := ask()
	check.Equal(t, why.Refused != nil, true, "refused, of a full hour")
	check.Equal(t, why.Limits[0].Used, 1000, "used")
	check.Equal(t, why.Limits[0].Short, 5, "too little")
	check.Equal(t, why.Meanwhile, false, "meanwhile")
	check.Equal(t, store.reads, 1, "reads of the ledger")

	*now = now.Add(2 * time.Hour)
	store.decided = charge
	why = ask()
	check.Equal(t, why.Meanwhile, true, "meanwhile, when charges never stop")

	store.decided = nil
	*now = now.Add(2 * time.Hour)
	reservation := must.Get(other.Reserve(t.Context(), budget.Call{Operation: "op"}, time.Hour))(t)
	store.read = func() {
		if store.reads == 1 {
			must.Do(t, other.Settle(t.Context(), reservation.ID, 3))
		}
	}
	why = ask()
	check.Equal(t, why.Meanwhile, false, "meanwhile, of a settlement")
	check.EqualSlices(t, why.Limits[0].By, []budget.UsedBy{{Kind: "unlabelled", Used: 3}}, "used by")
	check.Equal(t, store.reads, 2, "reads of the ledger")

	for range 5 {
		must.Get(other.Reserve(t.Context(), budget.Call{Operation: "op", ID: fmt.Sprint("r", n)}, time.Hour))(t)
		n++
	}
	store.read = func() {
		n--
		must.Do(t, other.Release(t.Context(), fmt.Sprint("r", n)))
	}
	why = ask()
	check.Equal(t, why.Meanwhile, true, "meanwhile, of releases")
	check.Equal(t, store.reads, 3, "reads of the ledger")
	check.EqualSlices(t, why.Limits[0].By[len(why.Limits[0].By)-1:], []budget.UsedBy{{Kind: "meanwhile", Used: 5}}, "the last")
}

// However much a ledger holds, the lists are bounded, and say what they leave out.
func TestWhyListsAreBounded(t *testing.T) {
	t.Parallel()
	const many = 5 * budget.WhyListed
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	began := now
	store := memstore.New(func() int64 { return now.UnixMicro() })
	one := int64(1)
	b := must.Get(budget.New(store, budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 2}}, Limits: []limit.Limit{{
		Name: "hour", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
	}}}, budget.WithNow(func() time.Time { return now })))(t)
	for i := range many { // those that end first are charged last
		now = now.Add(time.Millisecond)
		must.Get(b.Reserve(t.Context(), budget.Call{Operation: "op", ID: fmt.Sprintf("r%03d", i)}, time.Duration(2*many-i)*time.Second))(t)
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "op", Units: &one, Labels: budget.Labels{Job: fmt.Sprint("j", i)}}))(t)
	}
	l := must.Get(b.Why(t.Context(), budget.Call{Operation: "op"}))(t).Limits[0]
	check.Equal(t, l.Used, 3*many, "used")
	check.Equal(t, len(l.By), budget.WhyListed, "jobs")
	check.Equal(t, l.By[0], budget.UsedBy{Kind: "unlabelled", Used: 2 * many}, "the greatest")
	check.Equal(t, l.ByRest, budget.Rest{Count: many + 1 - budget.WhyListed, Amount: many + 1 - budget.WhyListed}, "further jobs")
	check.Equal(t, len(l.Open), budget.WhyListed, "reservations")
	check.Equal(t, l.Open[0].ID, "r499", "ends first")
	check.Equal(t, l.Open[budget.WhyListed-1].ID, "r400", "the last that is listed")
	last := began.Add(time.Millisecond + 2*many*time.Second)
	check.Equal(t, l.OpenRest, budget.Rest{Count: many - budget.WhyListed, Amount: 2 * (many - budget.WhyListed), Last: last}, "further reservations")
	check.Equal(t, len(l.Returns), budget.WhyListed, "returns")
	check.Equal(t, l.Returns[0].At, l.NextReturn, "the first return")
	check.Equal(t, l.Returns[0].Amount, 1, "the first return")
	check.Equal(t, l.ReturnsRest, budget.Rest{Count: 2*many - budget.WhyListed, Amount: 3*many - budget.WhyListed, Last: last.Add(time.Hour)}, "further returns")
	for i, r := range l.Returns {
		check.Equal(t, i == 0 || r.At.After(l.Returns[i-1].At), true, "in order")
	}
}
