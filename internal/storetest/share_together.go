package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// dayFrom is a calendar day of 10 units that starts at an hour UTC, all guaranteed to
// nightly until a span before the reset.
func dayFrom(t *testing.T, name string, hour int, lapse time.Duration) limit.Limit {
	c := must.Get(limit.NewCalendar(limit.Day, "UTC", time.Duration(hour)*time.Hour))(t)
	l := limit.Limit{Name: name, Limit: 10, Counts: limit.CountUnits, Window: limit.CalendarWindow(c)}
	return shared(l, lapsing(share("nightly", 10), lapse))
}

// A limit fits only for a while if a guarantee lapses: the wait is for an instant at which
// all limits fit, also those that do not refuse the call now.
func testSharesTogether(t *testing.T, w *world) {
	midnight := noon + 12*hour
	call := func() driver.Item { return by("backfill", item("c", "op", 1)) }

	// Both lapse 7 h before their resets at 06:00 and at 10:00: together from 03:00 to 06:00.
	w.limits = []limit.Limit{dayFrom(t, "six", 6, 7*time.Hour), dayFrom(t, "ten", 10, 7*time.Hour)}
	w.onTime(call(), 1, midnight+3*hour)

	// The rolling limit returns after the reset of the day, which is charged by then.
	w.budget, w.limits = "up/rolling", []limit.Limit{rolling("rolling", 5, 4*time.Hour), dayFrom(t, "six", 6, time.Hour)}
	w.now = midnight + 5*hour
	w.granted(by("backfill", item("a", "op", 5)))
	w.now++
	w.refused(call(), 0, midnight+29*hour)
	w.onTime(call(), 1, midnight+29*hour)

	// A lock ends after the reset.
	w.budget, w.limits = "up/lock", []limit.Limit{dayFrom(t, "six", 6, time.Hour)}
	w.now = midnight + 5*hour
	w.lock(driver.Lock{Until: midnight + 7*hour, Why: "x"})
	d := w.decide(call())[0]
	if d.Result != driver.Refused || !d.Locked || d.RetryAt != midnight+29*hour {
		t.Errorf("locked until after the reset: %+v, want locked, and to fit at %d", d, midnight+29*hour)
	}
	w.unlock("", true)

	// They never lapse together: what nightly is guaranteed in the one or the other is in force.
	w.budget, w.limits = "up/never", []limit.Limit{rolling("rolling", 5, time.Hour), dayFrom(t, "six", 6, time.Hour), dayFrom(t, "noon", 12, time.Hour)}
	w.now = noon + hour
	d = w.decide(call())[0]
	if d.Result != driver.NeverFits || d.Limit != 1 || d.Remaining != 10 {
		t.Errorf("two guarantees that never lapse together: %+v, want that it never fits limit 1, of which 10 remain", d)
	}
	check.Equal(t, w.decide(by("nightly", item("n", "op", 1)))[0].Result, driver.Granted, "nightly's own call")
}

// A pattern's jobs may be many. A narrower pattern that comes later takes its jobs' charges
// out of theirs, and a wider one has them too.
func testSharesTenants(t *testing.T, w *world) {
	const tenants = 600
	w.limits = []limit.Limit{shared(rolling("day", tenants+100, 24*time.Hour), share("tenant.*", tenants))}
	w.granted(by("backfill", item("a", "op", 100)))
	ones := int64(0) // tenant.1, tenant.10 to 19, tenant.100 to 199
	for from := 0; from < tenants; from += 100 {
		var items []driver.Item
		for i := from; i < from+100; i++ {
			job := fmt.Sprint("tenant.", i)
			if strings.HasPrefix(job, "tenant.1") {
				ones++
			}
			items = append(items, by(job, item(job, fmt.Sprint("op", i%3), 1)))
		}
		for i, d := range w.decide(items...) {
			must.Equal(t, d.Result, driver.Granted, "within the guarantee: tenant", from+i)
		}
	}
	check.EqualSlices(t, w.usedBy(), []int64{tenants}, "used by tenant.*")
	divide := func(patterns ...string) {
		w.limits[0].Shares = nil
		for _, pattern := range patterns {
			w.limits[0].Shares = append(w.limits[0].Shares, share(pattern, 1))
		}
	}
	divide("tenant.1*", "tenant.2", "x")
	check.EqualSlices(t, w.usedBy(), []int64{ones, 1, 0}, "used by narrower patterns")
	divide("ten*")
	check.EqualSlices(t, w.usedBy(), []int64{tenants}, "used by a wider pattern")
	divide("tenant.1*", "tenant.2*")
	check.EqualSlices(t, w.usedBy(), []int64{ones, ones}, "used by both")
}
