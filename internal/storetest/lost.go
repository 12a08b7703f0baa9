package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// recorded makes an item one that has already happened.
func recorded(i driver.Item, age time.Duration) driver.Item {
	i.Recorded, i.Age = true, age.Microseconds()
	return i
}

// A charge made while the store was out of reach is recorded once, even above the limit,
// and leaves the window when it would have.
func testRecorded(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour), rolling("short", 1000, time.Minute)}
	w.granted(item("a", "op", 90))
	w.now += 10 * minute
	d := w.granted(recorded(item("b", "op", 60), 5*time.Minute))
	must.Equal(t, d.At, w.now-5*minute, "recorded at")
	must.Equal(t, d.Remaining, 0, "recorded at")
	view := w.look()
	must.Equal(t, view.Limits[0].Used, 150, "used")
	must.Equal(t, view.Limits[1].Used, 0, "used")
	if again := w.decide(recorded(item("b", "op", 60), 7*time.Minute))[0]; !again.Replayed || again.At != d.At {
		t.Fatalf("recorded twice: %+v, first %+v", again, d)
	}
	must.Equal(t, w.decide(recorded(item("b", "op", 61), 0))[0].Result, driver.Conflict, "the id with other units")
	w.onTime(item("c", "op", 40), 0, noon+hour) // a has returned, b still counts
	w.onTime(item("d", "op", 41), 0, d.At+hour)
	used := w.used(0)
	for range 2 { // it leaves no entry, so there is nothing to replay
		w.granted(recorded(item("old", "op", 5), time.Hour))
	}
	w.granted(recorded(item("edge", "op", 5), time.Hour-time.Microsecond))
	must.Equal(t, w.used(0), used+5, "used")

	w.budget = "up/reset" // in the midst of a batch, before the operation is new
	hourly := calendar(t, "hour", 100, limit.Hour, "UTC")
	hourly.Window.Guard = 2
	w.limits = []limit.Limit{hourly}
	w.now += hour - w.now%hour
	w.decide(item("1", "op", 1), item("2", "op", 1), item("3", "op", 1))
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.now += second
	w.granted(item("new", "new", 5))
	w.limits = []limit.Limit{hourly}
	w.granted(recorded(item("before", "new", 7), 10*time.Second))
	must.Equal(t, w.used(0), 1+1+1+5, "used after the reset")
}

// A reservation that ended while the store was out of reach ends at that instant, but not
// before it began.
func testFinishedEarlier(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	at := w.granted(lease(item("a", "op", 40), 30*time.Minute)).At
	w.granted(lease(item("b", "op", 40), 30*time.Minute))
	w.now += 20 * minute
	must.Equal(t, w.finish(driver.Finish{ID: "a", Units: 50, Age: 5 * minute}, driver.Settled, false).At, w.now-5*minute, "settled at")
	w.now += 20 * minute // past the lease of b, which was released within it
	must.Equal(t, w.finish(driver.Finish{ID: "b", Release: true, Age: 39 * minute}, driver.Released, false).At, w.now-39*minute, "released at")
	w.granted(lease(item("c", "op", 10), time.Hour))
	if f := w.finish(driver.Finish{ID: "c", Units: 10, Age: hour}, driver.Settled, false); f.At != w.now {
		t.Fatalf("settled %d µs before it began", w.now-f.At)
	}
	w.onTime(item("d", "op", 90), 0, at+15*minute+hour)
}

// lost looks and decides with a mark, the newest acknowledged charge.
func (w *world) lost(newest driver.Mark, want error) {
	w.t.Helper()
	_, err := w.store.Look(context.Background(), driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits, Mark: newest})
	w.wantError(err, want)
	_, err = w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Mark: newest, Items: []driver.Item{item("probe", "op", 1)}})
	w.wantError(err, want)
}

// A charge that was acknowledged but is missing is missed as long as it would be kept;
// until then nothing is decided.
func testLost(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 2*time.Hour)}
	d := w.granted(item("a", "op", 10))
	w.lost(driver.Mark{ID: "a", At: d.At}, nil)
	w.lost(driver.Mark{ID: "b", At: d.At}, driver.ErrLost)
	w.now = d.At + 2*hour - 1
	w.lost(driver.Mark{ID: "b", At: d.At}, driver.ErrLost)
	if used := w.used(0); used != 11 { // the one probe that was decided
		t.Fatalf("used %d, want 11: nothing is charged while charges are missed", used)
	}
	w.now++
	w.lost(driver.Mark{ID: "b", At: d.At}, nil)
	// On an empty ledger the windows of the request say how long.
	w.budget = "up/flushed"
	w.lost(driver.Mark{ID: "b", At: w.now - 2*hour + 1}, driver.ErrLost)
	w.lost(driver.Mark{ID: "b", At: w.now - 2*hour}, nil)
}

// recover reports what a host has seen.
func (w *world) recover(at int64, newest string, used ...int64) []int64 {
	w.t.Helper()
	got := must.Get(driver.Apply(context.Background(), w.store, driver.Recovery{
		Budget: w.budget, Now: w.now, Limits: w.limits, Used: used, At: at, Mark: driver.Mark{ID: newest, At: at},
	}))(w.t)
	return got.Amounts
}

func (w *world) wantRecovered(got []int64, want ...int64) {
	w.t.Helper()
	for i := range want {
		must.Equal(w.t, got[i], want[i], "recovered", got, want)
	}
}

// Missing units are recorded as one charge per limit, in that limit alone: what was seen
// less what survived, at the time it was seen. A later caller may raise it.
func testRecover(t *testing.T, w *world) {
	search := rolling("search", 4000, 2*time.Hour, "search.list")
	calls := limit.Limit{Name: "calls", Limit: 1000, Counts: limit.CountCalls, Window: limit.RollingWindow(2 * time.Hour)}
	w.limits = []limit.Limit{rolling("day", 10_000, 24*time.Hour), search, calls, calendar(t, "pacific", 10_000, limit.Day, "America/Los_Angeles")}
	w.granted(item("survivor", "search.list", 100))
	seen := w.now + minute
	w.now += 5 * minute
	w.granted(item("later", "videos.list", 7)) // after the loss, by a host that had seen nothing
	w.wantRecovered(w.recover(seen, "survivor", 900, 300, 20, 900), 0, 0, 0, 0)
	w.wantRecovered(w.recover(seen, "lost", 900, 300, 20, -1), 800, 200, 19, 0)
	for i, want := range []int64{907, 300, 21, 107} {
		if got := w.look().Limits[i]; got.Used != want || got.Recovered != []int64{800, 200, 19, 0}[i] {
			t.Fatalf("limit %s: %+v, want %d used", w.limits[i].Name, got, want)
		}
	}
	// Another host had seen less, and one had seen more, later.
	w.wantRecovered(w.recover(seen-1, "lost", 500, 100, 2, 100), 800, 200, 19, 0)
	later := seen + minute
	w.wantRecovered(w.recover(later, "lost too", 1000, 350, 15, 1000), 900, 250, 19, 900)
	must.Equal(t, w.used(0), 1007, "used: the more of both, not the sum")
	rows := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.budget, Now: w.now, By: driver.ByOperation}))(t)
	found := map[string]int64{}
	for _, row := range rows.Rows {
		found[row.Name] = row.Units
	}
	if found[limit.RecoveredOperation("day")] != 900 || found["search.list"] != 100 || found[limit.RecoveredOperation("search")] != 250 {
		t.Fatalf("the ledger shows %v", found)
	}
	// It leaves the window like a charge made when it was seen.
	w.onTime(item("fits", "search.list", 3751), 1, later+2*hour)
	must.Equal(t, w.used(0), 1007+3751, "used")
	w.now = later + 24*hour
	must.Equal(t, w.used(0), 7+3751, "used after a day, want what was charged since")
	// What has left its window is not recovered, even if it left at this instant.
	w.budget, w.limits = "up/short", []limit.Limit{rolling("hour", 100, time.Hour)}
	for _, at := range []int64{w.now - hour - minute, w.now - hour} {
		r := driver.Recovery{Budget: w.budget, Now: w.now, Limits: w.limits, Used: []int64{100}, At: at, Mark: driver.Mark{Ledger: "other", Seen: at}}
		got := must.Get(driver.Apply(context.Background(), w.store, r))(t)
		must.Equal(t, got.Amounts[0], 0, "what was used")
	}
	// For a window that is added later, what still counts is recovered.
	w.granted(item("short", "op", 1))
	w.limits = append(w.limits, rolling("longer", 100, 3*time.Hour))
	at := w.now - 2*hour
	r := driver.Recovery{Budget: w.budget, Now: w.now, Limits: w.limits, Used: []int64{-1, 50}, At: at, Mark: driver.Mark{Ledger: "other", Seen: at}}
	must.Equal(t, must.Get(driver.Apply(context.Background(), w.store, r))(t).Amounts[1], 50, "what was used in a longer window: … recovered")
}

// Reservations that were open when a caller saw them counted as they asked for: whatever became
// of them since, they are not recorded as missing.
func testRecoverOpen(t *testing.T, w *world) {
	calls := limit.Limit{Name: "calls", Limit: 1000, Counts: limit.CountCalls, Window: limit.RollingWindow(24 * time.Hour)}
	w.limits = []limit.Limit{rolling("day", 1000, 24*time.Hour), calls, rolling("search", 1000, time.Hour, "search")}
	w.granted(item("plain", "op", 50))
	for _, id := range []string{"open", "down", "up", "zero", "released", "over"} {
		w.granted(lease(item(id, "op", 20), time.Hour))
	}
	w.granted(lease(item("short", "search", 20), time.Minute))
	w.now += second
	at := w.now
	w.now += 5 * minute // past the end of one lease
	w.granted(item("later", "op", 3))
	w.granted(lease(item("later too", "op", 4), time.Hour))
	for id, units := range map[string]int64{"down": 5, "up": 70, "zero": 0} {
		w.finish(driver.Finish{ID: id, Units: units}, driver.Settled, false)
	}
	w.finish(driver.Finish{ID: "released", Release: true}, driver.Released, false)
	w.wantRecovered(w.recover(at, "lost", 190, 8, 20), 0, 0, 0)
	w.wantRecovered(w.recover(at, "lost", 201, 10, 27), 11, 2, 7)
	w.budget = "up/none" // where there is nothing left of them, they are recorded as reserved
	w.wantRecovered(w.recover(at, "lost", 190, 8, 20), 190, 8, 20)
}

// A bucket is filled by what is left of what was seen, at most to its limit.
func testRecoverBucket(t *testing.T, w *world) {
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	w.limits = []limit.Limit{
		{Name: "burst", Limit: 50, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)},
		rolling("w", 1000, time.Hour),
	}
	w.granted(item("a", "op", 10))
	w.wantRecovered(w.recover(w.now-5*second, "lost", 25, -1), 20, 0)
	must.Equal(t, w.used(0), 30, "level")
	w.wantRecovered(w.recover(w.now, "lost", 45, -1), 20, 0)
	must.Equal(t, w.used(0), 50, "level, no more than full")
	w.wantRecovered(w.recover(w.now, "lost", 70, -1), 20, 0) // debt, or headroom that was spent
	must.Equal(t, w.used(0), 70, "level, want the 70 that were seen")
	w.now += 20 * second
	w.onTime(item("b", "op", 1), 0, w.now+second)
}

// A ledger that was reset is empty, and earlier acknowledged charges are not missed.
func testReset(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 24*time.Hour), rolling("other", 100, 24*time.Hour, "op")}
	d := w.granted(item("a", "op", 90))
	w.granted(lease(item("r", "op", 5), time.Hour))
	w.now += minute
	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget}))(t)
	if view := w.look(); view.Limits[0].Used != 0 || view.Limits[0].Since != w.now+1 {
		t.Fatalf("after a reset: %+v", view)
	}
	w.lost(driver.Mark{ID: "a", At: d.At}, nil)
	w.lost(driver.Mark{ID: "b", At: w.now + 1}, driver.ErrLost)
	must.Equal(t, w.granted(item("a", "op", 90)).Remaining, 9)
	w.finish(driver.Finish{ID: "r", Units: 5}, driver.FinishExpired, false)
	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: "up/never"}))(t)
}
