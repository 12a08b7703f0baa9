package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func coarse(name string, most int64, window, precision time.Duration, operations ...string) limit.Limit {
	l := rolling(name, most, window, operations...)
	l.Window = limit.CoarseWindow(window, precision)
	return l
}

// I2: a slot returns as if all of it had been charged at its end, to the microsecond; an
// entry exactly at the end belongs to the slot.
func testCoarseInstants(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("w", 10, time.Minute, 7*time.Second)}
	start := noon - noon%(7*second) + 7*second // a slot's end
	w.now = start
	w.granted(item("edge", "op", 4)) // in the slot that ends here
	w.now++
	w.granted(item("next", "op", 3))
	w.now = start + 6*second
	w.granted(item("late", "op", 3)) // in the same slot as next
	w.refused(item("a", "op", 4), 0, start+minute)
	w.refused(item("a", "op", 5), 0, start+7*second+minute)
	if v := w.look().Limits[0]; v.Used != 10 || v.NextAt != start+minute || v.NextAmount != 4 {
		t.Fatalf("view %+v, want 4 of 10 back at %d", v, start+minute)
	}
	w.onTime(item("b", "op", 4), 0, start+minute)
	w.refused(item("c", "op", 1), 0, start+7*second+minute)
	must.Equal(t, w.look().Limits[0].NextAmount, 6, "view")
	w.onTime(item("c", "op", 6), 0, start+7*second+minute)
}

// I1: coarse windows keep the exact bound, and cost at most one precision.
func testCoarseNeverOver(t *testing.T, w *world) {
	const most = 20
	w.limits = []limit.Limit{coarse("w", most, time.Minute, 7*time.Second)}
	var at []int64
	for i := range 600 {
		w.now += 400_000 + int64(i%7)*90_000
		if d := w.decide(item(fmt.Sprint(i), "op", 1))[0]; d.Result == driver.Granted {
			at = append(at, w.now)
		} else if d.RetryAt-w.now > minute+7*second {
			t.Fatalf("a wait of %d µs", d.RetryAt-w.now)
		}
	}
	for i := most; i < len(at); i++ {
		if at[i]-at[i-most] < minute {
			t.Fatalf("%d charges within a minute, at %d", most+1, at[i])
		}
	}
	if len(at) < most*5 { // five minutes and more went by
		t.Fatalf("only %d charges granted", len(at))
	}
}

// If all windows are coarse, entries older than an hour lose their ids and are merged;
// they count the same as before.
func testMerging(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("day", 2*many, 24*time.Hour, time.Minute), coarse("hours", 2*many, 3*time.Hour, 10*time.Minute, "a")}
	w.now += 12_345 // within a slot
	w.fill()        // thousands at once
	reserved := lease(item("r", "a", 5), time.Hour)
	reserved.Labels = driver.Labels{Job: "job", Region: "US", Run: "run"}
	w.granted(reserved)
	gone := lease(item("gone", "b", 7), time.Minute)
	w.granted(gone)
	w.finish(driver.Finish{ID: "gone", Release: true}, driver.Released, false)
	first := w.now - noon
	w.now = noon + hour - second
	if d := w.decide(item("fill0", "a", 1))[0]; !d.Replayed {
		t.Fatalf("within the hour: %+v, want a replay", d)
	}
	w.now = noon + 2*hour + 2*first + 2*minute // the reservation's lease ended more than an hour ago, too
	before := w.look()
	w.granted(item("now", "b", 1))
	after := w.look()
	for i, l := range after.Limits {
		if want := before.Limits[i].Used + int64(1-i); l.Used != want || l.NextAt != before.Limits[i].NextAt {
			t.Fatalf("limit %d: %+v once merged, before %+v", i, l, before.Limits[i])
		}
	}
	if want := noon + minute + 24*hour; after.Limits[0].NextAt != want { // the slot of the first entry
		t.Fatalf("what merged is back at %d, want %d", after.Limits[0].NextAt, want)
	}
	w.finish(driver.Finish{ID: "r", Units: 9}, driver.FinishExpired, false)
	w.finish(driver.Finish{ID: "gone", Release: true}, driver.FinishExpired, false)
	must.Equal(t, w.granted(item("fill0", "b", 2)).At, w.now+1, "an id of more than an hour ago:, want a new charge")

	// A window that is added later counts merged entries, and no id is valid again.
	w.limits = append(w.limits, rolling("exact", 2*many, 12*time.Hour))
	w.granted(item("fill1", "b", 1))
	if got, want := w.used(2), w.used(0); got != want {
		t.Fatalf("a new window counts %d of %d", got, want)
	}
	view := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: driver.ByJob}))(t)
	sums := map[string]driver.SpentRow{}
	for _, row := range view.Rows {
		sums[row.Name] = row
	}
	if got := sums["job"]; got.Units != 5 || got.Calls != 1 || got.Open != 0 {
		t.Errorf("the job spent %+v, want 5 in one call", got)
	}
	if got := sums[""]; got.Units != many+4 || got.Calls != many+3 {
		t.Errorf("the others spent %+v, want %d units in %d calls", got, many+4, many+3)
	}

	// In the end, everything returns.
	w.now += 25 * hour
	for i := range w.limits {
		check.Equal(t, w.used(i), 0, "limit", i, "used a day later")
	}
}
