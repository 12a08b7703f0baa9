package limit_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// An exception takes operations out wherever it is in the list, and adds none beside a name.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		operations []string
		operation  string
		covers     bool
		beyond     bool // may it cover operations other than this one?
	}{
		{nil, "a", true, true},
		{[]string{"a"}, "a", true, false},
		{[]string{"a"}, "b", false, true},
		{[]string{"!b", "a"}, "a", true, false},
		{[]string{"!b", "a"}, "c", false, true},
		{[]string{"a.*", "!a.b"}, "a.b", false, true},
		{[]string{"!a.b", "a.*"}, "a.c", true, true},
		{[]string{"!b"}, "a", true, true},
		{[]string{"!b"}, "b", false, true},
	} {
		l := limit.Limit{Operations: c.operations}
		check.Equal(t, l.Covers(c.operation), c.covers, c.operations, "covers", c.operation)
		beyond := l.CoversBeyond(func(operation string) bool { return operation == c.operation })
		check.Equal(t, beyond, c.beyond, c.operations, "covers more than", c.operation)
	}
}

// With its headroom a call may use the quota. A cap of one's own has none to use.
func TestBound(t *testing.T) {
	capped := limit.Limit{Limit: 50, Counts: limit.CountUnits}
	quota := limit.Limit{Quota: 100, Headroom: 30, Limit: 70, OutagePart: 10, Counts: limit.CountUnits}
	calls := limit.Limit{Quota: 100, Headroom: 30, Limit: 70, OutagePart: 10, Counts: limit.CountCalls}
	for _, c := range []struct {
		limit       limit.Limit
		useHeadroom bool
		want        int64
	}{{capped, false, 45}, {capped, true, 45}, {quota, false, 65}, {quota, true, 85}, {calls, false, 70}, {calls, true, 90}} {
		check.Equal(t, c.limit.Bound(5, c.useHeadroom), c.want, "the bound of", c.limit, "with its headroom", c.useHeadroom)
	}
}

// The guard after a reset ends at its first instant outside.
func TestInGuard(t *testing.T) {
	w := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	midnight := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC).UnixMicro()
	const guard = int64(5_000_000)
	_, _, in := w.InGuard(midnight)
	check.Equal(t, in, false, "in a guard of nothing")
	w.Guard = guard
	for after, want := range map[int64]bool{-1: false, 0: true, guard - 1: true, guard: false} {
		began, until, in := w.InGuard(midnight + after)
		check.Equal(t, in, want, "in the guard", after, "µs after the reset")
		if in {
			check.Equal(t, began, midnight, "the reset")
			check.Equal(t, until, midnight+guard, "the guard's end")
		}
	}
	rolling := limit.RollingWindow(time.Hour)
	rolling.Guard = guard
	_, _, in = rolling.InGuard(midnight)
	check.Equal(t, in, false, "a rolling window is in a guard")
}

// The largest rates are taken.
func TestRefillTakesItsBounds(t *testing.T) {
	for _, c := range []struct {
		amount int64
		period time.Duration
	}{{limit.MaxUnits, time.Microsecond}, {1, limit.MaxWindow}, {1, time.Microsecond}} {
		if _, err := limit.NewRefill(c.amount, c.period); err != nil {
			t.Errorf("%d per %s: %v", c.amount, c.period, err)
		}
	}
}
