package view

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
)

// limitOf is a rolling limit with the given use and kept units.
func limitOf(name string, window time.Duration, used, kept, whole int64) budget.LimitStatus {
	l := budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: whole, Counts: limit.CountUnits, Window: limit.RollingWindow(window)}, Used: used, Remaining: whole - used}
	if kept > 0 {
		l.Shares = []budget.ShareStatus{{Share: limit.Share{Name: "nightly"}, Kept: kept}}
	}
	return l
}

// A budget is as narrow as its tightest limit, the one with the smallest part free: not the one
// with the fewest units left, which is always that of the shortest window.
func TestNarrowest(t *testing.T) {
	minute, day := limitOf("minute", time.Minute, 53, 0, 100), limitOf("day", 24*time.Hour, 784, 160, 950)
	observed, calls, one := limitOf("observed", time.Hour, 10, 0, 10), limitOf("calls", time.Hour, 10, 0, 10), limitOf("one", time.Hour, 10, 0, 10)
	observed.Observe, calls.Counts, one.Operations = true, limit.CountCalls, []string{"get"}
	for _, test := range []struct {
		limits []budget.LimitStatus
		want   string
	}{
		{[]budget.LimitStatus{minute, day, observed, calls, one}, "day"},
		{[]budget.LimitStatus{minute, limitOf("day", 24*time.Hour, 300, 100, 950)}, "minute"},
		{[]budget.LimitStatus{limitOf("day", 24*time.Hour, 300, 160, 950), limitOf("minute", time.Minute, 40, 0, 100)}, "day"},
		{[]budget.LimitStatus{observed, calls}, "calls"},
	} {
		check.Equal(t, Narrowest(budget.Status{Limits: test.limits}).Name, test.want, "narrowest")
	}
	check.Equal(t, Narrowest(budget.Status{}) == nil, true, "no limits")
	status := budget.Status{Budget: "geo/main", Limits: []budget.LimitStatus{minute, day}}
	check.Equal(t, Left(status), "6 of 950 units free in limit day", "left")
	on := screen.Screen{Terminal: true, Width: 100, Height: 24, Zone: time.UTC}
	check.Equal(t, strings.HasPrefix(Glance(on, status, nil, false), "geo/main  6 of 950 units free in limit day, 160 more kept for nightly\n"), true, Glance(on, status, nil, false))
	check.Equal(t, strings.HasPrefix(Glance(on, budget.Status{Budget: "a/b"}, nil, false), "a/b  no limits\n"), true, "without limits")
}
