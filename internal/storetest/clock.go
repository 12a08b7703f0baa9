package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// I6: a clock that steps back frees nothing early and grants nothing twice.
func testClockBackwards(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, time.Minute)}
	w.granted(item("a", "op", 10))
	w.now = noon + minute
	at := w.granted(item("b", "op", 10)).At
	w.now = noon - hour
	d := w.decide(item("c", "op", 1))[0]
	must.Equal(t, d.Result, driver.Refused, "an hour back")
	must.Equal(t, d.RetryAt, at+minute, "an hour back")
	w.limits[0].Limit = 11
	if d := w.granted(item("d", "op", 1)); d.At != at+1 {
		t.Fatalf("charged at %d, want one microsecond after the newest entry, %d", d.At, at+1)
	}
	w.now = at + minute
	w.granted(item("e", "op", 10))
}

// I6: a hold whose end was only seen by a change that found nothing to change, and so wrote
// nothing, lives on once the clock has stepped back.
func testClockBackwardsToAHold(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, 24*time.Hour)}
	taken := w.granted(lease(hold(daily, need("read", 8, 1)), time.Second)).At
	w.now += 30 * second
	w.changeHold(driver.HoldChange{Fence: other, Lease: minute}, 0)
	w.now -= 5 * hour
	w.wantLeft([]driver.Need{need("read", 8, 1)})
	again := w.decide(hold(daily, need("read", 2, 1)))[0]
	check.Equal(t, again.Replayed, true, "the hold lives, so it is the one asked for")
	check.Equal(t, again.At, taken, "taken at")
	w.refused(item("a", "read", 3), 0, noon+second)
}

// I6: a clock that jumps ahead of everything it has shown, and of the caller, frees
// nothing until it is accepted.
func testClockForwards(t *testing.T, w *world) {
	ctx := context.Background()
	w.limits = []limit.Limit{rolling("w", 10, time.Minute)}
	w.granted(lease(item("a", "op", 10), time.Second))
	caller := noon + second
	for _, ahead := range []int64{61 * second, hour, 1000 * hour} {
		w.now = caller + ahead
		_, err := w.tryDecide(caller, item("b", "op", 1))
		w.wantError(err, driver.ErrClock)
		_, err = driver.FinishOne(ctx, w.store, w.budget, caller, driver.Finish{ID: "a", Units: 1})
		w.wantError(err, driver.ErrClock)
		_, err = w.store.Look(ctx, driver.Look{Budget: w.budget, Now: caller, Limits: w.limits})
		w.wantError(err, driver.ErrClock)
	}
	w.now = caller // the glitch is over: nothing has expired, nothing is frozen
	w.refused(item("b", "op", 1), 0, noon+second+minute)
	w.now = caller + 60*second // 60 s is within the tolerance
	must.Get(w.tryDecide(caller, item("b", "op", 1)))(t)
	w.now += hour
	_, err := w.tryDecide(caller, item("c", "op", 1))
	w.wantError(err, driver.ErrClock)
	must.Get(driver.Apply(ctx, w.store, driver.AcceptClock{Budget: w.budget}))(t)
	got := must.Get(w.tryDecide(caller, item("c", "op", 10)))(t)
	must.Equal(t, got.Items[0].Result, driver.Granted, "after the clock was accepted")
	w.budget = "up/fresh" // a new ledger must not trust a wrong clock
	_, err = w.tryDecide(caller, item("c", "op", 1))
	w.wantError(err, driver.ErrClock)
	must.Get(driver.Apply(ctx, w.store, driver.AcceptClock{Budget: w.budget}))(t)
	must.Equal(t, must.Get(w.tryDecide(caller, item("c", "op", 1)))(t).Items[0].Result, driver.Granted, "a new ledger whose clock was accepted")
}

// I6: a clock far behind what it has shown, such as that of a replica that became the
// master, is treated as standing still. Charges made meanwhile count from the callers'
// clock, so they do not return early once the clock is right again.
func testClockFarBehind(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, 10*time.Minute)}
	tell := func(caller int64, result driver.Result, i driver.Item) driver.Decision {
		t.Helper()
		got := must.Get(w.tryDecide(caller, i))(t)
		must.Equal(t, got.Items[0].Result, result, "at", caller, "by the caller", w.now, "by the clock")
		return got.Items[0]
	}
	tell(noon, driver.Granted, item("a", "op", 4))
	w.now = noon + 5*minute - 2*hour
	if d := tell(noon+5*minute, driver.Granted, item("b", "op", 6)); d.At != noon+5*minute {
		t.Fatalf("charged at %d, want the later clock's %d", d.At, noon+5*minute)
	}
	w.now = noon + 10*minute - 2*hour
	must.Equal(t, tell(noon+10*minute, driver.Refused, item("c", "op", 4)).RetryAt, noon+10*minute, "refused until")
	w.now = noon + 11*minute // the clock is right again
	tell(w.now, driver.Granted, item("c", "op", 4))
	must.Equal(t, tell(w.now, driver.Refused, item("d", "op", 6)).RetryAt, noon+15*minute, "refused until")
	w.now = noon + 15*minute - 1
	tell(w.now, driver.Refused, item("d", "op", 6))
	w.now++
	tell(w.now, driver.Granted, item("d", "op", 6))
}

// I6: of two clocks that differ by up to a minute, the earlier one frees, and charges
// count from the later one. Waits are computed by the earlier one.
func testClockWitness(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 10, 10*time.Minute)}
	for _, ahead := range []int64{30 * second, -30 * second, minute, 1, -1, -minute} {
		w.budget = fmt.Sprint("up/", ahead)
		w.now = noon + ahead
		if got, err := w.tryDecide(noon, item("a", "op", 10)); err != nil || got.Items[0].Result != driver.Granted {
			t.Fatalf("%+v, %v", got.Items, err)
		}
		free := noon + max(ahead, 0) + 10*minute
		for _, early := range []int64{9 * minute, second, 1} {
			earlier := free - early
			w.now = earlier + max(ahead, 0)
			got, err := w.tryDecide(w.now-ahead, item("b", "op", 1))
			if d := got.Items[0]; err != nil || d.Result != driver.Refused || d.RetryAt-got.Now != early {
				t.Fatalf("%d µs ahead, %d early: %+v, %v, the clock shows %d", ahead, early, d, err, got.Now)
			}
		}
		w.now = free + max(ahead, 0)
		if got, err := w.tryDecide(w.now-ahead, item("b", "op", 1)); err != nil || got.Items[0].Result != driver.Granted {
			t.Fatalf("%d µs ahead, in time: %+v, %v", ahead, got.Items, err)
		}
	}
}

// I6: in true time no window is ever exceeded, however one of the two clocks (the store's
// or the callers') is set by seconds and hours, as by servers that take over from each
// other, as long as the other clock is right.
func testClockTrueTime(t *testing.T, w *world) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 6))
	rounds, calls := effort.Of(6, 6, 12), 400
	all := 0
	for round := range rounds {
		w.budget = fmt.Sprint("up/", round)
		day := must.Get(limit.NewCalendar("day", "America/Los_Angeles", 0))(t)
		w.limits = []limit.Limit{
			rolling("short", 7, time.Minute), rolling("long", 40, 5*time.Hour),
			{Name: "day", Limit: 60, Counts: limit.CountUnits, Window: limit.CalendarWindow(day)},
		}
		storeErrs := round%2 == 0
		now, wrong := noon+rng.Int64N(24*hour), int64(0)
		var sent []arrival
		for step := range calls {
			now += []int64{rng.Int64N(second), rng.Int64N(minute), rng.Int64N(10 * minute)}[rng.IntN(3)]
			if rng.IntN(20) == 0 {
				wrong = []int64{0, rng.Int64N(2*minute) - minute, rng.Int64N(20*hour) - 10*hour}[rng.IntN(3)]
			}
			caller := now
			if w.now = now; storeErrs {
				w.now += wrong
			} else {
				caller += wrong
			}
			i := item(fmt.Sprint(step), "op", 1+rng.Int64N(3))
			if rng.IntN(4) == 0 {
				i = lease(i, time.Duration(1+rng.IntN(100))*time.Second)
			}
			got, err := w.tryDecide(caller, i)
			if errors.Is(err, driver.ErrClock) {
				continue
			}
			must.Do(t, err)
			if got.Items[0].Result == driver.Granted {
				sent = append(sent, arrival{now, i.Units})
			}
		}
		neverOver(t, w.limits, sent)
		all += len(sent)
	}
	if all < rounds*calls/20 {
		t.Errorf("%d of %d calls were sent", all, rounds*calls)
	}
}

// arrival is a call as seen by the upstream.
type arrival struct{ at, units int64 }

// neverOver checks what the upstream saw: at each arrival, the window that ends there is
// within its limit.
func neverOver(t *testing.T, limits []limit.Limit, sent []arrival) {
	t.Helper()
	for _, limit := range limits {
		for last, newest := range sent {
			sum, cut := int64(0), limit.Window.Cut(newest.at)
			for _, a := range sent[:last+1] {
				if a.at > cut {
					sum += a.units
				}
			}
			if sum > limit.Limit {
				t.Fatalf("limit %s: %d of %d units until %d in true time", limit.Name, sum, limit.Limit, newest.at)
			}
		}
	}
}

// I6: every entry has a microsecond of its own, even if the clock stands still.
func testOwnMicrosecond(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	seen := map[int64]bool{}
	last := int64(0)
	for round := range 5 {
		var items []driver.Item
		for i := range 20 {
			items = append(items, item(fmt.Sprintf("%d-%d", round, i), "op", 1))
		}
		for _, d := range w.decide(items...) {
			if seen[d.At] || d.At <= last {
				t.Fatalf("an entry at %d after one at %d", d.At, last)
			}
			seen[d.At], last = true, d.At
		}
	}
	must.Equal(t, last, noon+99, "the last of 100 entries at")
}
