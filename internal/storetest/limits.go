package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// I1: no decision takes used above its bound, and a charge that fits is granted.
func testNeverOver(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Minute)}
	for i := range int64(10) {
		w.now = noon + i*second
		if d := w.granted(item(fmt.Sprint("a", i), "op", 10)); d.Remaining != 100-10*(i+1) || d.Limit != 0 {
			t.Fatalf("charge %d: %+v", i, d)
		}
	}
	w.refused(item("b", "op", 1), 0, noon+minute)
	must.Equal(t, w.used(0), 100, "used")
	w.now = noon + minute + second/2
	w.granted(item("c", "op", 10))
	w.refused(item("d", "op", 1), 0, noon+minute+second)
}

// I1: all limits of a call are charged together or not at all.
func testAllOrNothing(t *testing.T, w *world) {
	calls := rolling("calls", 3, time.Hour)
	calls.Counts = limit.CountCalls
	w.limits = []limit.Limit{rolling("wide", 100, time.Minute), rolling("narrow", 10, time.Minute, "b"), calls}
	w.granted(item("1", "b", 8))
	w.refused(item("2", "b", 5), 1, noon+minute)
	w.granted(item("3", "a", 50))
	if wide, narrow, n := w.used(0), w.used(1), w.used(2); wide != 58 || narrow != 8 || n != 2 {
		t.Fatalf("used %d, %d, %d calls; want 58, 8, 2: a refusal by one limit must charge none", wide, narrow, n)
	}
	w.granted(item("4", "a", 0))
	w.refused(item("5", "a", 1), 2, noon+hour)
}

// I1: floor and headroom change the bound of one call.
func testFloorAndHeadroom(t *testing.T, w *world) {
	l := rolling("w", 90, time.Minute)
	l.Quota, l.Headroom, l.OutagePart = 100, 10, 4
	w.limits = []limit.Limit{l}
	floor := item("floor", "op", 1)
	floor.Floor = 40
	w.granted(item("a", "op", 50))
	w.refused(floor, 0, noon+minute)
	floor.Floor = 39
	w.granted(floor)
	w.granted(item("b", "op", 39))
	w.refused(item("c", "op", 1), 0, noon+minute)
	head := item("head", "op", 6)
	head.UseHeadroom = true
	must.Equal(t, w.granted(head).Remaining, 0, "remaining … above the limit")
	head = item("head2", "op", 1)
	head.UseHeadroom = true
	w.refused(head, 0, noon+minute) // the hosts' outage part stays
	must.Equal(t, w.used(0), 96, "used")
}

// I1: units recorded above the limit are debt, and nothing fits until the debt has left
// the window.
func testDebt(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Minute)}
	w.granted(lease(item("r", "op", 10), time.Minute))
	w.now += second
	w.finish(driver.Finish{ID: "r", Units: 150}, driver.Settled, false)
	must.Equal(t, w.used(0), 150, "used")
	w.refused(item("a", "op", 0), 0, w.now+minute)
	w.onTime(item("a", "op", 100), 0, w.now+minute)
}

// I1: filters combine names and prefixes and subtract exceptions.
func testFilters(t *testing.T, w *world) {
	w.limits = []limit.Limit{
		rolling("all", 10_000, time.Minute),
		rolling("names", 10_000, time.Minute, "a.list", "b.list"),
		rolling("prefix", 10_000, time.Minute, "a.*"),
		rolling("except", 10_000, time.Minute, "!a.list"),
		rolling("both", 10_000, time.Minute, "a.*", "!a.list"),
	}
	for i, op := range []string{"a.list", "a.get", "b.list", "c"} {
		w.granted(item(op, op, int64(1)<<(4*i)))
	}
	want := []int64{0x1111, 0x0101, 0x0011, 0x1110, 0x0010}
	for i, n := range want {
		check.Equal(t, w.used(i), n, "limit", w.limits[i].Name, "used")
	}
}

// I2: a charge is refused one microsecond early and granted on time.
func testRollingInstants(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.granted(item("a", "op", 60))
	w.now = noon + 7
	w.granted(item("b", "op", 30))
	w.now = noon + 10*minute
	w.refused(item("c", "op", 11), 0, noon+hour)
	w.refused(item("c", "op", 70), 0, noon+hour)
	w.refused(item("c", "op", 71), 0, noon+hour+7)
	w.refused(item("c", "op", 100), 0, noon+hour+7)
	w.onTime(item("c", "op", 11), 0, noon+hour)
	w.onTime(item("d", "op", 89), 0, noon+hour+7)
	view := w.look().Limits[0]
	if view.Used != 100 || view.NextAt != noon+2*hour || view.NextAmount != 11 {
		t.Fatalf("view %+v, want 100 used, 11 back at %d", view, noon+2*hour)
	}
}

// I2: calendar periods start to the microsecond, also on days of 23 and 25 hours.
func testCalendarInstants(t *testing.T, w *world) {
	pacific := must.Get(time.LoadLocation("America/Los_Angeles"))(t)
	for _, c := range []struct {
		name  string
		date  time.Time
		hours int64
	}{
		{name: "short", date: time.Date(2026, 3, 8, 0, 0, 0, 0, pacific), hours: 23},
		{name: "long", date: time.Date(2026, 11, 1, 0, 0, 0, 0, pacific), hours: 25},
		{name: "plain", date: time.Date(2027, 1, 10, 0, 0, 0, 0, pacific), hours: 24},
	} {
		w.budget = "up/" + c.name
		w.limits = []limit.Limit{calendar(t, "day", 100, limit.Day, "America/Los_Angeles")}
		midnight := c.date.UnixMicro()
		w.now = midnight - 1
		w.granted(item("before", "op", 100))
		w.onTime(item("first", "op", 60), 0, midnight)
		w.now = midnight + 3*hour
		w.granted(item("second", "op", 40))
		w.refused(item("third", "op", 1), 0, midnight+c.hours*hour)
		w.onTime(item("third", "op", 100), 0, midnight+c.hours*hour)
	}
}

// I2: the wait is the longest over the limits, and its limit binds.
func testSeveralLimits(t *testing.T, w *world) {
	day := calendar(t, "day", 100, limit.Day, "UTC")
	w.limits = []limit.Limit{rolling("minute", 60, time.Minute), day, rolling("search", 30, time.Hour, "search")}
	midnight := noon + 12*hour
	w.granted(item("a", "search", 30))
	w.refused(item("b", "search", 1), 2, noon+hour)
	w.now += second
	w.granted(item("c", "list", 30))
	w.refused(item("d", "list", 30), 0, noon+minute)
	w.refused(item("d", "list", 60), 1, midnight)
	w.onTime(item("d", "list", 30), 0, noon+minute)
	w.refused(item("e", "search", 11), 1, midnight)
	w.now = noon + 2*hour
	if d := w.granted(item("f", "list", 5)); d.Limit != 1 || d.Remaining != 5 {
		t.Fatalf("after the last charge limit %d has %d left, want limit 1 with 5", d.Limit, d.Remaining)
	}
}

// I2: an open reservation counts until it is finished, then from its finish.
func testReservationInstants(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, time.Minute), calendar(t, "day", 10, limit.Day, "UTC")}
	midnight := noon + 12*hour
	w.now = midnight - hour
	w.granted(lease(item("r", "op", 6), 2*time.Hour)) // open across midnight
	w.refused(item("a", "op", 5), 1, midnight+24*hour)
	w.refused(item("a", "op", 10), 1, midnight+24*hour)
	w.now = midnight + second
	w.refused(item("a", "op", 5), 1, midnight+24*hour)
	w.finish(driver.Finish{ID: "r", Units: 4}, driver.Settled, false)
	w.granted(item("a", "op", 5))
	w.refused(item("b", "op", 2), 1, midnight+24*hour)
	w.granted(lease(item("s", "op", 1), time.Hour))
	w.now += second
	w.finish(driver.Finish{ID: "s", Release: true}, driver.Released, false)
	must.Equal(t, w.used(1), 9, "used after a release")

	w.budget = "up/abandoned"
	w.limits = w.limits[:1]
	start := w.now
	w.granted(lease(item("r", "op", 10), 10*time.Second))
	w.onTime(item("a", "op", 10), 0, start+10*second+minute)
}

// I2: a call that can never fit gets that answer, and no wait.
func testNeverFits(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("wide", 100, time.Minute), rolling("narrow", 10, time.Minute, "op")}
	big := item("a", "op", 8)
	big.Floor = 3
	for _, i := range []driver.Item{item("a", "op", 11), big} {
		d := w.decide(i)[0]
		if d.Result != driver.NeverFits || d.Limit != 1 || d.RetryAt != 0 || d.Remaining != 10 {
			t.Errorf("%+v: %+v, want never fits by limit 1", i, d)
		}
	}
	must.Equal(t, w.used(0), 0, "a call that can never fit was charged")
}

// I3: a refusal charges nothing, on any limit, and its id is free.
func testRefusalChargesNothing(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, time.Minute), rolling("x", 100, time.Hour)}
	w.granted(item("a", "op", 10))
	for range 50 {
		w.refused(item("b", "op", 1), 0, noon+minute)
	}
	must.Equal(t, w.used(0), 10, "used")
	must.Equal(t, w.used(1), 10, "used")
	w.now += minute
	w.granted(item("b", "op", 2)) // refusals are not kept, so other units are no conflict
}

// The boundary: bursts on both sides of a window's edge pass a counter per fixed window
// twice, but a trailing window only once.
func testBoundary(t *testing.T, w *world) {
	const most = 50
	w.limits = []limit.Limit{rolling("w", most, time.Minute)}
	edge := noon - noon%minute + minute
	fixed, fixedAccepted, accepted := map[int64]int{}, 0, 0
	for _, at := range []int64{edge - second, edge + second} {
		w.now = at
		for i := range 2 * most {
			if period := at / minute; fixed[period] < most {
				fixed[period]++
				fixedAccepted++
			}
			if w.decide(item(fmt.Sprintf("%d-%d", at, i), "op", 1))[0].Result == driver.Granted {
				accepted++
			}
		}
	}
	must.Equal(t, fixedAccepted, 2*most, "within two seconds a fixed window accepts")
	must.Equal(t, accepted, most, "within two seconds a fixed window accepts")
}
