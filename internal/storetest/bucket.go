package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

func bucket(t testing.TB, name string, most, amount int64, period time.Duration, operations ...string) limit.Limit {
	refill := must.Get(limit.NewRefill(amount, period))(t)
	return limit.Limit{Name: name, Limit: most, Counts: limit.CountUnits, Window: limit.BucketWindow(refill), Operations: operations}
}

// I2: the instant at which a bucket has room again is exact to the microsecond, also at
// rates that do not divide evenly, and its remainder is kept over any number of steps.
func testBucketInstants(t *testing.T, w *world) {
	w.limits = []limit.Limit{bucket(t, "b", 10, 7, 3*time.Second)} // a unit every 428571.428… µs
	start := w.now
	w.granted(item("a", "op", 10))
	w.refused(item("b", "op", 11-4), 0, start+3*second) // 7 units: 3 s sharp
	w.refused(item("b", "op", 1), 0, start+428_572)
	if v := w.look().Limits[0]; v.Used != 10 || v.NextAt != start+428_572 || v.NextAmount != 1 {
		t.Fatalf("view %+v", v)
	}
	w.onTime(item("b", "op", 1), 0, start+428_572)
	w.refused(item("c", "op", 1), 0, start+857_143)
	for i := range 300 { // frequent looks do not slow the drain
		w.now = start + 428_572 + int64(i)
		w.refused(item("c", "op", 1), 0, start+857_143)
	}
	w.onTime(item("c", "op", 1), 0, start+857_143)
	w.onTime(item("d", "op", 1), 0, start+1_285_715)
	w.now = start + hour
	must.Equal(t, w.used(0), 0, "used an hour later and no less")
	w.granted(item("e", "op", 10))
	w.refused(item("f", "op", 1), 0, start+hour+428_572)

	w.budget = "up/fast" // many units a microsecond
	w.limits = []limit.Limit{bucket(t, "b", 1000, 33, time.Microsecond)}
	start = w.now
	w.granted(item("a", "op", 1000))
	w.refused(item("b", "op", 34), 0, start+2)
	if v := w.look().Limits[0]; v.NextAt != start+1 || v.NextAmount != 33 {
		t.Fatalf("view %+v, want 33 back in 1 µs", v)
	}
}

// A bucket that begins later is empty if all before it cost nothing.
func testBucketAfterNothing(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, time.Hour)}
	w.granted(item("a", "op", 0))
	w.limits = append(w.limits, bucket(t, "b", 10, 1, time.Hour))
	must.Equal(t, w.used(1), 0, "used")
	w.granted(item("b", "op", 10))
}

// The edges of the ranges: the largest units, and a limit times the refill's period near
// 2^53.
func testBucketEdges(t *testing.T, w *world) {
	w.limits = []limit.Limit{bucket(t, "b", limit.MaxUnits, 1, 8*time.Microsecond)}
	if _, err := budget.New(w.store, budget.Spec{Name: "up/edge", Limits: w.limits}); err == nil {
		t.Error("a bucket that takes 250 years to drain was accepted")
	}
	w.limits = []limit.Limit{bucket(t, "b", limit.MaxUnits, 1_000_000_000, 9*time.Microsecond)}
	must.Get(budget.New(w.store, budget.Spec{Name: "up/edge", Limits: w.limits}))(t)
	w.granted(item("a", "op", limit.MaxUnits))
	start := w.now
	w.refused(item("b", "op", 1), 0, start+1)
	w.refused(item("b", "op", 111_111_112), 0, start+2)
	w.refused(item("b", "op", limit.MaxUnits), 0, start+9_000_000)
	w.onTime(item("b", "op", limit.MaxUnits), 0, start+9_000_000)
	w.decide(item("c", "op", 0))
	w.granted(lease(item("r", "op", 0), time.Hour))
	w.finish(driver.Finish{ID: "r", Units: limit.MaxUnits}, driver.Settled, false) // a debt
	v := w.look().Limits[0]
	if want := 2*limit.MaxUnits - 2*1_000_000_000/9; v.Used != want { // the last entry is 2 µs younger
		t.Fatalf("used %d, want %d", v.Used, want)
	}
	w.refused(item("d", "op", 1), 0, w.now+9_000_000+1)

	w.budget = "up/sums" // recorded units add up as far as integers are exact
	w.limits = append(w.limits, rolling("w", limit.MaxUnits, time.Hour))
	for i := range 10 {
		w.granted(lease(item(fmt.Sprint("s", i), "op", 0), time.Hour))
	}
	for i := range 9 {
		w.finish(driver.Finish{ID: fmt.Sprint("s", i), Units: limit.MaxUnits}, driver.Settled, false)
	}
	w.finish(driver.Finish{ID: "s9", Units: limit.MaxUnits}, driver.FinishOverflow, false)
	must.Equal(t, [2]int64{w.used(0), w.used(1)}, [2]int64{9 * limit.MaxUnits, 9 * limit.MaxUnits}, "used, want nine times the most there is")
	w.refused(item("e", "op", 1), 1, w.now+9+hour) // ten entries, a microsecond each
}

// Reservations and buckets: a release returns at most what cannot have drained.
func testBucketReservations(t *testing.T, w *world) {
	w.limits = []limit.Limit{bucket(t, "b", 100, 1, time.Second)}
	w.granted(lease(item("a", "op", 40), time.Hour))
	w.now += 10 * second
	w.finish(driver.Finish{ID: "a", Release: true}, driver.Released, false)
	must.Equal(t, w.used(0), 0, "used after a release, want what was there before: 0")
	w.granted(item("full", "op", 100))
	w.now += 50 * second
	w.granted(lease(item("b", "op", 20), time.Hour)) // 70
	w.now += 5 * second                              // 65
	w.finish(driver.Finish{ID: "b", Release: true}, driver.Released, false)
	if got := w.used(0); got != 50 { // 20 less the 5 of them that may have drained
		t.Fatalf("used %d after a release, want 50", got)
	}
	w.granted(lease(item("c", "op", 20), 10*time.Second)) // 70
	w.now += 5 * second
	w.finish(driver.Finish{ID: "c", Units: 12}, driver.Settled, false) // 65 − (8 − 5)
	must.Equal(t, w.used(0), 62, "used after a settlement")
	w.granted(lease(item("d", "op", 10), 10*time.Second)) // 72
	w.now += minute                                       // 12; its lease is over
	w.finish(driver.Finish{ID: "d", Units: 30}, driver.Settled, false)
	must.Equal(t, w.used(0), 32, "used after a late settlement upwards")

	w.budget = "up/calls"
	calls := bucket(t, "calls", 3, 1, time.Minute)
	calls.Counts = limit.CountCalls
	w.limits = []limit.Limit{calls}
	w.granted(lease(item("a", "op", 500), time.Hour))
	w.granted(item("b", "op", 0))
	w.granted(item("c", "op", 7))
	w.refused(item("d", "op", 1), 0, w.look().Limits[0].NextAt)
	w.finish(driver.Finish{ID: "a", Release: true}, driver.Released, false)
	w.granted(item("d", "op", 1))
}

// A meter counts every charge that it covers, whatever limits the charge came with.
// Limits with the same shape share a meter. A new meter starts from the ledger, full at
// its oldest entry.
func testBucketMeters(t *testing.T, w *world) {
	fast, video := bucket(t, "fast", 100, 1, time.Second), bucket(t, "video", 50, 1, time.Second, "videos.*", "!videos.rate")
	other := []limit.Limit{rolling("w", 1000, time.Hour)}
	w.limits = []limit.Limit{fast, video, other[0]}
	w.granted(item("a", "videos.list", 30))
	w.limits = other // another configuration
	w.granted(item("b", "videos.list", 10))
	w.granted(item("c", "videos.rate", 5))
	w.granted(lease(item("r", "videos.list", 5), time.Hour))
	w.finish(driver.Finish{ID: "r", Units: 8}, driver.Settled, false)
	low := fast
	low.Name, low.Limit = "low", 60
	w.limits = []limit.Limit{fast, video, low}
	must.Equal(t, [3]int64{w.used(0), w.used(1), w.used(2)}, [3]int64{53, 48, 53}, "used, want 53, 48 and 53")
	w.refused(item("d", "videos.list", 8), 1, w.now+6*second)

	w.budget = "up/later"
	w.limits = other
	w.granted(item("old", "op", 40))
	w.now += 10 * second
	w.granted(item("new", "op", 20))
	w.granted(lease(item("open", "op", 7), time.Hour))
	w.granted(item("zero", "op", 0))
	w.now += 5 * second
	w.limits = []limit.Limit{fast, other[0]}
	if got := w.used(0); got != 100-10+20-5+7 { // full at the oldest; open units as of now
		t.Fatalf("a new bucket has used %d", got)
	}
	w.decide(item("e", "op", 0)) // in debt
	must.Equal(t, w.used(0), 100-10+20-5+7, "a new bucket has used once it is in use")

	w.budget = "up/many" // more than one step can replay
	w.limits = []limit.Limit{rolling("w", 2*many, 24*time.Hour)}
	w.fill()
	w.now += hour
	hours := bucket(t, "hours", 2*many, 1000, time.Hour)
	w.limits = append(w.limits, hours)
	w.decide(item("x", "a", 1)) // in debt: it starts full
	if got, most := w.used(1), int64(2*many+many); got >= most || got <= 2*many {
		t.Fatalf("used %d", got)
	}

	w.budget = "up/idle" // a meter that is unused for long is forgotten
	w.limits = []limit.Limit{fast, rolling("w", 1000, 30*24*time.Hour)}
	w.granted(item("a", "op", 50))
	w.limits = w.limits[1:]
	w.now += 8 * 24 * hour
	w.granted(item("b", "op", 50))
	w.limits = []limit.Limit{fast, w.limits[0]}
	if got := w.used(0); got != 50 { // replayed: full eight days ago, then 50
		t.Fatalf("used %d", got)
	}
}
