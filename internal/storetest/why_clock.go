package storetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// WhyOfSkewedClocks checks that Why names who used what where callers' clocks are ahead of the
// store's or behind it. The clock is the store's.
func WhyOfSkewedClocks(t *testing.T, store driver.Store, clock *atomic.Int64) {
	t.Helper()
	clock.Store(noon)
	at := func(skew time.Duration) *budget.Budget {
		return must.Get(budget.New(store, whySpec(t), budget.WithNow(func() time.Time { return time.UnixMicro(clock.Load()).UTC().Add(skew) })))(t)
	}
	ahead, behind := at(40*time.Second), at(-40*time.Second)
	must.Get(ahead.Charge(t.Context(), budget.Call{Operation: "search", Labels: budget.Labels{Job: "feeds"}}))(t)
	must.Get(behind.Charge(t.Context(), budget.Call{Operation: "list", Labels: budget.Labels{Job: "nightly"}}))(t)
	must.Get(ahead.Reserve(t.Context(), budget.Call{Operation: "search", Labels: budget.Labels{Job: "feeds"}}, time.Minute))(t)
	for name, b := range map[string]*budget.Budget{"ahead": ahead, "behind": behind, "right": at(0)} {
		why := must.Get(b.Why(t.Context(), budget.Call{Operation: "search"}))(t)
		check.Equal(t, why.Meanwhile, false, "meanwhile, of a clock that is", name)
		for _, l := range why.Limits {
			want := map[string][]budget.UsedBy{
				"hour":  {{Kind: "job", Job: "feeds", Share: "feeds", Used: 200}, {Kind: "job", Job: "nightly", Share: "nightly", Used: 1}},
				"calls": {{Kind: "job", Job: "feeds", Used: 2}},
				"open":  {{Kind: "job", Job: "feeds", Used: 1}},
			}
			want["day"] = want["hour"]
			check.EqualSlices(t, l.By, want[l.Name], l.Name, "used by, of a clock that is", name)
			check.Equal(t, len(l.Open), 1, l.Name, "open, of a clock that is", name)
		}
	}
	clock.Add((59*time.Minute + 50*time.Second).Microseconds()) // the first charge returns 50 s later: its caller's clock was ahead
	why := must.Get(behind.Why(t.Context(), budget.Call{Operation: "search"}))(t)
	check.Equal(t, why.Limits[0].Used, 201, "used")
	check.Equal(t, why.Meanwhile, false, "meanwhile")
}
