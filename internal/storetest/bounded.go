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

// many is more entries than a store may process in one step.
const many = 4500

// fill charges many entries of one unit, alternating between two operations; at(i) is
// when entry i was charged.
func (w *world) fill() (at func(i int) int64) {
	w.t.Helper()
	first := w.now
	for i := 0; i < many; {
		var items []driver.Item
		for range driver.MaxBatch {
			if i < many {
				items = append(items, item(fmt.Sprint("fill", i), []string{"a", "b"}[i%2], 1))
				i++
			}
		}
		for _, d := range w.decide(items...) {
			must.Equal(w.t, d.Result, driver.Granted, "fill", d)
		}
		w.now += 1000 * int64(len(items))
	}
	return func(i int) int64 {
		return first + int64(i/driver.MaxBatch)*1000*driver.MaxBatch + int64(i%driver.MaxBatch)
	}
}

// I7: more entries expire at once than one step processes; the decision after that is
// still exact.
func testManyExpire(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", many, time.Hour), rolling("b", many, 10*time.Minute, "b")}
	at := w.fill()
	w.refused(item("x", "a", many), 0, at(many-1)+hour)
	w.now += 3 * hour
	must.Equal(t, w.used(0), 0, "used after all expired")
	must.Equal(t, w.granted(item("x", "b", many)).Remaining, 0, "after all expired")
	w.refused(item("y", "b", 1), 0, w.now+hour)
}

// I7: a refusal whose wait lies thousands of entries ahead is exact, whatever else the
// ledger contains.
func testLongWalk(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", many+10, time.Hour), rolling("b", many, 20*time.Minute, "b")}
	at := w.fill()
	w.refused(item("x", "a", 11), 0, at(0)+hour)
	w.refused(item("x", "a", 4010), 0, at(3999)+hour)
	w.limits[1].Limit = many / 2
	w.refused(item("y", "b", 1), 1, at(1)+20*minute)
	w.limits[0].Limit = 2 * many
	w.refused(item("y", "b", 2100), 1, at(2*2100-1)+20*minute)
	w.onTime(item("z", "b", 2100), 1, at(2*2100-1)+20*minute)
}

// I7: a window that is added later is built from the ledger, over thousands of entries,
// and says since when its count is complete.
func testNewWindow(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 2*many, 2*time.Hour)}
	at := w.fill()
	w.granted(lease(item("r", "a", 5), time.Hour))
	w.limits = append(w.limits, rolling("new", many+6, time.Hour, "a", "b"), calendar(t, "day", many+7, limit.Day, "UTC"))
	if d := w.granted(item("x", "b", 1)); d.Limit != 1 || d.Remaining != 0 {
		t.Fatalf("on a new window: %+v, want limit 1 used up", d)
	}
	w.refused(item("y", "a", 1), 1, at(0)+hour)
	for i := range w.limits {
		check.Equal(t, w.used(i), many+6, "limit", w.limits[i].Name, "used")
		check.Equal(t, w.look().Limits[i].Since, 0, "limit", w.limits[i].Name, "knows since")
	}

	w.budget = "up/later" // a longer window does not know entries older than the short window and the hour
	w.limits = []limit.Limit{rolling("w", 100, time.Minute)}
	w.granted(item("a", "op", 10))
	w.now += 90 * minute
	w.granted(item("b", "op", 20))
	w.now += minute
	w.limits = append(w.limits, rolling("long", 100, 24*time.Hour))
	w.granted(item("c", "op", 1))
	view := w.look().Limits[1]
	must.Equal(t, view.Used, 21, "view")
	must.Equal(t, view.Since, w.now-minute-hour+1, "view")
	w.limits = append(w.limits, rolling("middle", 100, 12*time.Hour)) // the longer one does not complete its count
	w.granted(item("d", "op", 0))
	if view := w.look().Limits[2]; view.Used != 21 || view.Since != w.now-minute-hour+1 {
		t.Fatalf("view %+v of the middle window, want 21 used since %d", view, w.now-minute-hour+1)
	}
	w.now += 24 * hour
	must.Equal(t, w.look().Limits[1].Since, 0, "a day later it knows since")

	w.budget = "up/looked" // a look forgets nothing
	short := []limit.Limit{rolling("w", 100, 3*time.Hour)}
	w.limits = short
	w.granted(item("a", "op", 5))
	w.now += 2 * hour
	w.granted(item("b", "op", 7))
	w.now += hour + minute
	w.look()
	w.limits = []limit.Limit{rolling("long", 100, 24*time.Hour)}
	w.granted(item("c", "op", 1))
	if view := w.look().Limits[0]; view.Used != 13 || view.Since != 0 {
		t.Fatalf("view %+v, want 13 used, of all that was charged", view)
	}
}

// I8: an idle budget is forgotten: nothing of it counts, no id is kept, and it
// starts afresh.
func testIdle(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, 24*time.Hour)}
	w.granted(item("a", "op", 10))
	w.granted(lease(item("r", "op", 0), time.Hour))
	w.now += 24*hour + driver.WindowIdle + 3*hour
	view := w.look().Limits[0]
	must.Equal(t, view.Used, 0, "after a week and more")
	must.Equal(t, view.NextAt, 0, "after a week and more")
	w.granted(item("a", "op", 10))
	w.refused(item("b", "op", 1), 0, w.now+24*hour)
}

// Operations beyond those that a ledger distinguishes still count in every limit that may
// cover them, so that no limit is overspent.
func testManyOperations(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("all", 10_000, time.Hour), rolling("late", 10, time.Hour, "late.list"), rolling("prefix", 10, time.Hour, "late.*")}
	for i := range driver.MaxOperations + 40 {
		w.granted(item(fmt.Sprint("many", i), fmt.Sprint("op", i), 1))
	}
	granted := int64(0)
	for i := range 30 {
		if w.decide(item(fmt.Sprint("late", i), "late.list", 1))[0].Result == driver.Granted {
			granted++
		}
	}
	if granted > 10 {
		t.Fatalf("a limit of 10 granted %d to an operation that came late", granted)
	}
	must.Equal(t, w.used(0), driver.MaxOperations+40+granted, "used")
}
