package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

func guarded(t testing.TB, name string, limit int64, length, zone string, guard time.Duration) limit.Limit {
	l := calendar(t, name, limit, length, zone)
	l.Window.Guard = guard.Microseconds()
	return l
}

// I2: calendars of each length reset to the microsecond, also on days of 23 and 25 hours.
func testCalendarLengths(t *testing.T, w *world) {
	at := func(text string) int64 {
		when := must.Get(time.Parse(time.RFC3339, text))(t)
		return when.UnixMicro()
	}
	for i, c := range []struct{ length, zone, now, reset string }{
		{limit.Quarter, "UTC", "2026-06-10T12:14:59Z", "2026-06-10T12:15:00Z"},
		{limit.Quarter, "Asia/Kolkata", "2026-06-10T12:16:00Z", "2026-06-10T12:30:00Z"},
		{limit.Hour, "Asia/Kolkata", "2026-06-10T12:14:59Z", "2026-06-10T12:30:00Z"},
		{limit.Day, "America/Los_Angeles", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"}, // 23 hours
		{limit.Day, "America/Los_Angeles", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"}, // 25 hours
		{limit.Month, "Europe/Berlin", "2026-02-28T22:59:59Z", "2026-02-28T23:00:00Z"},
	} {
		w.budget = fmt.Sprint("up/", c.length, i)
		w.limits = []limit.Limit{calendar(t, "c", 10, c.length, c.zone)}
		w.now = at(c.now)
		w.granted(item("a", "op", 10))
		w.onTime(item("b", "op", 1), 0, at(c.reset))
	}
}

// A charge within the guard of a reset counts on both sides of it.
func testGuard(t *testing.T, w *world) {
	midnight := noon + 12*hour
	w.limits = []limit.Limit{guarded(t, "day", 10, limit.Day, "UTC", 5*time.Second)}
	w.now = midnight - 6*second
	w.granted(item("before", "op", 3)) // not within the guard
	w.now = midnight - 5*second
	w.granted(item("close", "op", 4)) // counts in the next day, too
	w.refused(item("a", "op", 7), 0, midnight+24*hour+5*second)
	w.refused(item("a", "op", 6), 0, midnight+5*second)
	w.now = midnight + 4*second
	w.granted(item("after", "op", 3)) // counts in the day before, too: that is full now
	w.refused(item("b", "op", 1), 0, midnight+5*second)
	if v := w.look().Limits[0]; v.Used != 10 || v.NextAt != midnight+5*second || v.NextAmount != 3 {
		t.Fatalf("view %+v, want 3 of 10 back when the guard is over", v)
	}
	w.onTime(item("b", "op", 3), 0, midnight+5*second)
	w.refused(item("c", "op", 1), 0, midnight+24*hour+5*second)

	// A reservation that is open across the reset counts until its lease's end and beyond.
	w.budget = "up/open"
	w.now = midnight - hour
	w.granted(lease(item("r", "op", 6), time.Hour+3*time.Second))
	w.now = midnight + minute
	w.refused(item("a", "op", 5), 0, midnight+24*hour+5*second)
	w.granted(item("a", "op", 4))
}
