package budget_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A status names the hosts that charge by other shares, but none that has changed to these.
func TestOtherShares(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	store := memstore.New(func() int64 { return now.UnixMicro() })
	spec := func(guarantee int64) budget.Spec {
		l := limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
		if guarantee > 0 {
			l.Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: guarantee}}
		}
		return budget.Spec{Name: "up/key1", Limits: []limit.Limit{l}, Costs: map[string]budget.Cost{"op": {Units: 1}}}
	}
	clock := budget.WithNow(func() time.Time { return now })
	old, young, none := must.Get(budget.New(store, spec(40), clock))(t), must.Get(budget.New(store, spec(50), clock))(t), must.Get(budget.New(store, spec(0), clock))(t)
	charge := func(b *budget.Budget) {
		t.Helper()
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "op"}))(t)
	}
	others := func(b *budget.Budget) []budget.OtherShares {
		t.Helper()
		return must.Get(b.Status(t.Context()))(t).OtherShares
	}
	elsewhere := func(digest string) {
		t.Helper()
		must.Get(store.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: now.UnixMicro(), Limits: spec(0).Limits, Table: driver.ShareTable{Host: "elsewhere", Digest: digest}}))(t)
	}
	charge(old)
	check.Equal(t, len(others(old)), 0, "hosts with other shares")
	check.Equal(t, len(others(young)), 1, "hosts with other shares, before this one has changed")
	now = now.Add(time.Second)
	charge(young) // the file was changed
	check.Equal(t, len(others(young)), 0, "hosts with other shares, after the change")
	now = now.Add(time.Minute)
	charge(old) // another process of the host still reads the former one
	check.Equal(t, len(others(young)), 1, "hosts with other shares, while both are in use")

	began := now
	elsewhere(limit.NoShares)
	got := others(young)
	check.EqualSlices(t, got[1:], []budget.OtherShares{{Host: "elsewhere", None: true, Last: began.UTC()}}, "another host")
	check.Equal(t, len(others(none)), 2, "hosts with shares, seen from one without")
	now = began.Add(59 * time.Minute)
	elsewhere(limit.DigestShares(spec(50).Limits))
	check.Equal(t, len(others(young)), 1, "hosts with other shares, after that one has them")
	now = began.Add(time.Hour)
	check.Equal(t, len(others(young)), 0, "hosts with other shares, an hour later")
}
