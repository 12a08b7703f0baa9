package view

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/rate"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
)

// Of several limits the one that is empty first is shown, else the one with the least left.
func TestAhead(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	one := func(name string, left int64, perHour float64, empty, resets time.Duration) budget.LimitStatus {
		r := &rate.Rate{PerHour: perHour, Charges: 9, Since: noon.Add(-6 * time.Hour)}
		if empty >= 0 {
			r.EmptyAt = noon.Add(empty)
		}
		if resets > 0 {
			r.ResetsAt = noon.Add(resets)
		}
		return budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: 1000, Counts: limit.CountUnits}, Remaining: left, Rate: r}
	}
	calls := one("calls", 5, 0.05, 100*time.Hour, 0)
	calls.Counts = limit.CountCalls
	unknown := budget.LimitStatus{Limit: limit.Limit{Name: "unknown", Limit: 1000, Counts: limit.CountUnits}, Remaining: 1}
	seen := one("seen", 1, 60, time.Minute, 0)
	seen.Observe = true
	for _, test := range []struct {
		limits []budget.LimitStatus
		want   string
	}{
		{nil, ""},
		{[]budget.LimitStatus{unknown}, ""},
		{[]budget.LimitStatus{one("idle", 9, 0, -1, 0)}, ""},
		{[]budget.LimitStatus{one("week", 60, 9.96, 6*time.Hour, 0), one("day", 240, 120.4, 2*time.Hour, 12*time.Hour), seen}, `
  limit day: 120 units an hour since 2026-11-20 06:00:00Z; at this rate empty at
  2026-11-20 14:00:00Z, resets at 2026-11-21 00:00:00Z
`},
		{[]budget.LimitStatus{calls, unknown}, `
  limit calls: 0.050 calls an hour since 2026-11-20 06:00:00Z; at this rate
  empty at 2026-11-24 16:00:00Z
`},
		{[]budget.LimitStatus{one("week", 600, 10, -1, 0), one("day", 240, 9.94, -1, 12*time.Hour)}, `
  limit day: 9.9 units an hour since 2026-11-20 06:00:00Z; at this rate it lasts
  until it resets at 2026-11-21 00:00:00Z
`},
		{[]budget.LimitStatus{one("week", 600, 9.95, -1, 0), unknown}, `
  limit week: 10 units an hour since 2026-11-20 06:00:00Z; at this rate it does
  not run out
`},
		{[]budget.LimitStatus{one("day", 0, 6, 0, 12*time.Hour)}, `
  limit day: 6.0 units an hour since 2026-11-20 06:00:00Z; empty now, resets at
  2026-11-21 00:00:00Z
`},
	} {
		want := test.want
		if want != "" {
			want = want[1:]
		}
		check.Equal(t, Ahead(screen.Pipe(), budget.Status{Limits: test.limits}, 0), want, test.limits)
	}
}
