package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

const (
	daily = "~daily/7" // the fence of the pass that most tests hold for
	other = "~other/3"
)

// need is one operation's need.
func need(operation string, units, calls int64) driver.Need {
	return driver.Need{Operation: operation, Units: units, Calls: calls}
}

// hold asks for a hold of a whole pass with a lease of an hour, which may take a minute.
func hold(fence string, needs ...driver.Need) driver.Item {
	i := driver.Item{ID: "hold of " + fence, Needs: needs, Span: minute, Lease: hour, Fence: fence, Labels: driver.Labels{Job: "daily"}}
	for _, n := range needs {
		i.Units += n.Units
	}
	return i
}

// of makes an item one of a pass.
func of(fence string, i driver.Item) driver.Item {
	i.Fence, i.Labels.Job = fence, "daily"
	return i
}

// wantLeft checks what the living holds have left.
func (w *world) wantLeft(want ...[]driver.Need) {
	w.t.Helper()
	holds := w.look().Holds
	must.Equal(w.t, len(holds), len(want), "living holds", holds)
	for at, h := range holds {
		if !slices.Equal(h.Left, want[at]) {
			w.t.Fatalf("hold %d has %v left, want %v", at, h.Left, want[at])
		}
	}
}

// changeHold renews or ends holds, and checks how many there were.
func (w *world) changeHold(c driver.HoldChange, want int) []driver.Hold {
	w.t.Helper()
	c.Budget, c.Now = w.budget, w.now
	got := must.Get(driver.Apply(w.t.Context(), w.store, c))(w.t)
	must.Equal(w.t, len(got.Holds), want, "holds of", c.Fence)
	return got.Holds
}

// The example of the contract: a hold counts for others, its pass draws from it, and what is
// left returns at once when it ends.
func testHold(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	w.granted(item("before", "read", 60))
	d := w.granted(hold(daily, need("read", 30, 3)))
	check.Equal(t, d.At, w.now, "the hold is taken at")
	check.Equal(t, d.Remaining, 10, "remaining beside the hold")
	check.Equal(t, w.used(0), 60, "used, without what is held")
	held := w.look().Holds[0]
	check.Equal(t, held.Until, noon+hour, "it ends with its lease")
	check.Equal(t, held.Job, "daily", "held by job")

	w.refused(item("too much", "read", 11), 0, noon+hour)
	w.now += second
	check.Equal(t, w.granted(of(daily, item("a", "read", 20))).Remaining, 10, "remaining after a draw")
	w.wantLeft([]driver.Need{need("read", 10, 2)})
	w.granted(of(daily, item("b", "read", 15))) // 10 drawn, 5 beside
	w.wantLeft([]driver.Need{need("read", 0, 1)})
	check.Equal(t, w.used(0), 95, "used after both")
	w.refused(item("c", "read", 6), 0, noon+24*hour)
	again := w.decide(of(daily, item("a", "read", 20)))[0]
	check.Equal(t, again.Replayed, true, "a draw is replayed")
	w.wantLeft([]driver.Need{need("read", 0, 1)})
}

// A hold ends with its lease, or when a caller ends it, or with its pass's fence: what was
// not drawn is back at once. A renewed one lives on.
func testHoldEnds(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	w.granted(hold(daily, need("read", 100, 1)))
	w.onTime(item("lease", "read", 1), 0, noon+hour)
	w.changeHold(driver.HoldChange{Fence: daily, Lease: hour}, 0)

	w.budget = "up/renewed"
	w.granted(hold(daily, need("read", 100, 1)))
	began := w.now
	w.now += hour / 2
	renewed := w.changeHold(driver.HoldChange{Fence: daily, Lease: hour}, 1)
	check.Equal(t, renewed[0].Until, began+hour/2+hour, "renewed until")
	w.changeHold(driver.HoldChange{Fence: daily, Lease: minute}, 1) // never earlier
	w.onTime(item("renewed", "read", 1), 0, began+hour/2+hour)

	w.budget = "up/ended"
	w.granted(hold(daily, need("read", 100, 1)))
	w.granted(of(daily, item("drawn", "read", 40)))
	w.refused(item("held", "read", 1), 0, w.now+hour)
	w.changeHold(driver.HoldChange{Fence: other}, 0)
	w.changeHold(driver.HoldChange{Fence: daily, Region: "US"}, 0)
	left := w.changeHold(driver.HoldChange{Fence: daily}, 1)
	must.Equal(t, left[0].Left[0].Units, 60, "it ends with")
	check.Equal(t, w.granted(item("rest", "read", 60)).Remaining, 0, "remaining when all is charged")

	w.budget = "up/fenced"
	w.granted(hold(daily, need("read", 50, 1)))
	w.granted(hold(other, need("read", 50, 1)))
	w.lock(driver.Lock{Limit: daily, After: hour, Why: "the pass was lost", Force: true})
	w.wantLeft([]driver.Need{need("read", 50, 1)})
	w.granted(item("fenced", "read", 50))
	check.Equal(t, w.decide(hold(daily, need("read", 1, 1)))[0].Result, driver.Fenced, "a hold behind its fence")
	w.unlock(daily, true)
	w.wantLeft([]driver.Need{need("read", 50, 1)}) // it does not come back

	w.budget = "up/reset"
	w.granted(hold(daily, need("read", 50, 1)))
	must.Get(driver.Apply(t.Context(), w.store, driver.Reset{Budget: w.budget}))(t)
	w.wantLeft()
	w.granted(item("reset", "read", 100))
}

// Limits of shorter windows than the pass, buckets and limits on open reservations count no
// hold.
func testHoldCounts(t *testing.T, w *world) {
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	calls := rolling("calls", 4, time.Hour)
	calls.Counts = limit.CountCalls
	w.limits = []limit.Limit{
		rolling("short", 20, time.Minute-time.Microsecond), rolling("long", 100, time.Minute), calls, rolling("write", 30, time.Hour, "write"),
		{Name: "bucket", Limit: 30, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)},
		{Name: "open", Limit: 1, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
	}
	never := w.decide(hold(daily, need("write", 31, 1)))[0]
	must.Equal(t, never.Result, driver.NeverFits, "more than a limit on one operation")
	must.Equal(t, never.Limit, 3, "limit")
	w.granted(hold(daily, need("read", 60, 3), need("write", 30, 0)))
	w.refused(item("long", "read", 11), 1, noon+hour)
	w.refused(item("write", "write", 1), 3, noon+hour)
	w.granted(item("fits", "read", 10))
	w.refused(item("calls", "read", 0), 2, noon+hour)
	w.refused(of(daily, item("short", "read", 11)), 0, noon+minute-1)
	w.now += minute
	w.granted(of(daily, item("a", "read", 10)))
	w.granted(of(daily, lease(item("b", "read", 0), time.Second)))
	w.wantLeft([]driver.Need{need("read", 50, 1), need("write", 30, 0)})
}

// A call that is drawn wholly skips floor and share; a part that is not drawn does not.
func testHoldSkips(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(rolling("day", 100, 24*time.Hour), share("nightly", 50))}
	w.granted(hold(daily, need("read", 40, 9)))
	w.kept(item("b", "read", 11), noon+hour, 50)
	floor := of(daily, item("floor", "read", 30))
	floor.Floor = 65
	w.granted(floor)
	more := of(daily, item("more", "read", 21)) // 10 drawn, 11 beside, of which 10 are free
	w.kept(more, noon+24*hour, 50)
	w.granted(by("nightly", item("theirs", "read", 50)))
	more.Units = 20
	w.granted(more)
	w.wantLeft([]driver.Need{need("read", 0, 7)})
	w.refused(of(daily, item("none", "read", 1)), 0, noon+24*hour)

	// A settlement took what is used and held above the limit: the pass draws all the same, up to the limit.
	w.budget, w.limits = "up/debt", []limit.Limit{rolling("day", 100, 24*time.Hour)}
	w.granted(lease(item("up", "read", 50), time.Hour))
	w.granted(hold(daily, need("read", 40, 9)))
	w.finish(driver.Finish{ID: "up", Units: 61}, driver.Settled, false)
	w.refused(item("others", "read", 1), 0, noon+hour)
	w.granted(of(daily, item("draw", "read", 30)))
	w.wantLeft([]driver.Need{need("read", 10, 8)})
	w.refused(of(daily, item("above", "read", 10)), 0, noon+24*hour)
	w.granted(of(daily, item("up to it", "read", 9)))

	// A hold whose pass may last beyond the reset must fit there too, where guarantees that have lapsed are back.
	w.budget, w.now = "up/reset", noon+12*hour-10*minute
	day := calendar(t, "day", 60, limit.Day, "UTC")
	day.Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 30, Lapse: hour}}
	w.limits = []limit.Limit{day}
	long := hold(daily, need("read", 50, 5))
	long.Lease, long.Span = minute, 20*minute
	check.Equal(t, w.decide(long)[0].Result, driver.Refused, "a hold across the reset")
	long.Span = 9 * minute
	w.granted(long)
	w.now = noon

	w.budget = "up/shares" // what is held for a share's job is used by that share
	w.limits = []limit.Limit{shared(rolling("day", 100, 24*time.Hour), share("nightly", 50))}
	theirs := hold(other, need("read", 30, 9))
	theirs.Labels.Job = "nightly"
	w.granted(theirs)
	w.granted(item("b", "read", 50))
	w.kept(item("c", "read", 1), noon+24*hour, 20)
}

// A reservation's release gives back all it drew to a hold that lives; a settlement gives back
// what it drew above the settled units.
func testHoldGivesBack(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	w.granted(hold(daily, need("read", 30, 3)))
	w.granted(of(daily, lease(item("released", "read", 20), time.Minute)))
	w.granted(of(daily, lease(item("settled", "read", 25), time.Minute))) // 10 drawn
	w.granted(of(daily, lease(item("up", "read", 0), time.Minute)))
	w.wantLeft([]driver.Need{need("read", 0, 0)})
	w.now += second
	w.finish(driver.Finish{ID: "released", Release: true}, driver.Released, false)
	w.wantLeft([]driver.Need{need("read", 20, 1)})
	w.finish(driver.Finish{ID: "released", Release: true}, driver.Released, true)
	w.finish(driver.Finish{ID: "settled", Units: 3}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 27, 1)})
	w.finish(driver.Finish{ID: "settled", Units: 3}, driver.Settled, true)
	w.finish(driver.Finish{ID: "up", Units: 5}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 22, 1)})
	check.Equal(t, w.used(0), 8, "used")
	w.granted(of(daily, lease(item("late", "read", 20), time.Minute)))
	w.changeHold(driver.HoldChange{Fence: daily}, 1)
	w.finish(driver.Finish{ID: "late", Release: true}, driver.Released, false)
	w.wantLeft()
	w.granted(item("rest", "read", 92))
}

// A settled reservation has drawn at most what it is settled as, and gives back only what it drew above that: units that
// were charged beside the hold are the first to return.
func testHoldSettledBelow(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	for _, c := range []struct{ held, reserved, settled, left int64 }{
		{3, 10, 5, 0}, {3, 10, 3, 0}, {3, 10, 2, 1}, {3, 10, 0, 3}, {3, 10, 12, 0},
		{20, 10, 10, 10}, {20, 10, 4, 16}, {10, 10, 11, 0}, {0, 10, 4, 0},
	} {
		w.budget = fmt.Sprintf("up/%d-%d-%d", c.held, c.reserved, c.settled)
		w.granted(hold(daily, need("read", c.held, 2)))
		w.granted(of(daily, lease(item("a", "read", c.reserved), time.Minute)))
		w.finish(driver.Finish{ID: "a", Units: c.settled}, driver.Settled, false)
		w.wantLeft([]driver.Need{need("read", c.left, 1)})
		check.Equal(t, w.granted(item("b", "read", 0)).Remaining, 100-c.settled-c.left, w.budget, "remaining")
	}
}

// A reservation settled above what it reserved draws the rest too, as far as its hold has it
// left: what is used and held together does not grow by what was held for the call.
func testHoldSettledAbove(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	for _, c := range []struct{ held, reserved, settled, left int64 }{
		{20, 1, 3, 17}, {20, 10, 20, 0}, {20, 10, 21, 0}, {20, 0, 20, 0}, {20, 20, 25, 0}, {10, 20, 25, 0}, {20, 5, 5, 15},
	} {
		w.budget = fmt.Sprintf("up/%d-%d-%d", c.held, c.reserved, c.settled)
		w.granted(hold(daily, need("read", c.held, 2), need("write", 7, 1)))
		w.granted(of(daily, lease(item("a", "read", c.reserved), time.Minute)))
		w.finish(driver.Finish{ID: "a", Units: c.settled}, driver.Settled, false)
		w.wantLeft([]driver.Need{need("read", c.left, 1), need("write", 7, 1)})
		w.finish(driver.Finish{ID: "a", Units: c.settled}, driver.Settled, true)
		w.wantLeft([]driver.Need{need("read", c.left, 1), need("write", 7, 1)})
		check.Equal(t, w.granted(item("b", "read", 0)).Remaining, 100-7-c.settled-c.left, w.budget, "remaining")
	}

	w.budget = "up/given back" // what another of its reservations gave back meanwhile is there too
	w.granted(hold(daily, need("read", 20, 3)))
	w.granted(of(daily, lease(item("a", "read", 18), time.Minute)))
	w.granted(of(daily, lease(item("b", "read", 5), time.Minute))) // 2 drawn
	w.finish(driver.Finish{ID: "a", Units: 14}, driver.Settled, false)
	w.finish(driver.Finish{ID: "b", Units: 8}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 1, 1)})

	w.budget = "up/nothing left" // what drew nothing draws nothing later, though others gave back
	w.granted(hold(daily, need("read", 10, 1)))
	w.granted(of(daily, lease(item("a", "read", 10), time.Minute)))
	w.granted(of(daily, lease(item("b", "read", 5), time.Minute)))
	w.finish(driver.Finish{ID: "a", Units: 2}, driver.Settled, false)
	w.finish(driver.Finish{ID: "b", Units: 8}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 8, 0)})
	w.granted(of(daily, lease(item("c", "read", 0), time.Minute)))
	w.finish(driver.Finish{ID: "c", Units: 3}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 8, 0)})

	w.budget = "up/none" // one that drew nothing, and one whose hold has ended
	w.granted(lease(item("a", "read", 5), time.Minute))
	w.granted(hold(daily, need("read", 20, 3)))
	w.granted(of(daily, lease(item("b", "read", 5), time.Minute)))
	w.finish(driver.Finish{ID: "a", Units: 8}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 15, 2)})
	w.changeHold(driver.HoldChange{Fence: daily}, 1)
	w.granted(hold(daily, need("read", 20, 3)))
	w.finish(driver.Finish{ID: "b", Units: 8}, driver.Settled, false)
	w.wantLeft([]driver.Need{need("read", 20, 3)})
}

// A hold asked for again is the same; one of a run is drawn before that of the pass; dry runs
// take and draw nothing; recorded items draw.
func testHoldAgain(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 100, 24*time.Hour)}
	ask := hold(daily, need("read", 90, 9))
	dry := ask
	dry.DryRun = true
	w.granted(dry)
	w.wantLeft()
	w.granted(ask)
	w.now += second
	again := w.decide(ask)[0]
	check.Equal(t, again.Replayed, true, "again")
	check.Equal(t, again.At, noon, "taken at")
	check.Equal(t, w.decide(dry)[0].Result, driver.Refused, "a dry run of one more")

	run := hold(daily, need("read", 10, 1))
	run.Labels.Region = "US"
	w.granted(run)
	w.wantLeft([]driver.Need{need("read", 90, 9)}, []driver.Need{need("read", 10, 1)})
	us := of(daily, item("us", "read", 4))
	us.Labels.Region = "US"
	would := us
	would.DryRun = true
	w.granted(would)
	w.granted(us)
	w.granted(of(daily, item("gb", "read", 5)))
	w.wantLeft([]driver.Need{need("read", 85, 8)}, []driver.Need{need("read", 6, 0)})
	late := of(daily, item("late", "read", 7))
	late.Recorded, late.Age = true, second
	w.granted(late)
	w.wantLeft([]driver.Need{need("read", 78, 7)}, []driver.Need{need("read", 6, 0)})
	check.Equal(t, w.used(0), 16, "used")

	batch := w.decide(item("a", "read", 1), hold(other, need("read", 1, 1)), of(daily, item("b", "read", 1)), hold(daily, need("read", 2, 1)))
	for i, want := range []driver.Result{driver.Refused, driver.Refused, driver.Granted, driver.Granted} {
		check.Equal(t, batch[i].Result, want, "item", i, "of a batch")
	}
	check.Equal(t, batch[0].RetryAt, noon+hour, "the first fits when a hold ends")
}

// Whatever holds, shares and windows there are: a refused item fits at its RetryAt, and not a
// microsecond before.
func testHoldsOnTime(t *testing.T, w *world) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	walk := &walker{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}, model: memstore.New(nil)}
	waited := 0
	for n := range effort.Of(150, 200, 1_500) {
		w.budget, walk.now = fmt.Sprint("up/", n), noon+walk.rng.Int64N(400*24*hour)
		w.limits = walk.limits()
		w.now = walk.now
		for range 12 {
			w.now += walk.rng.Int64N(minute)
			walk.now = w.now
			i := walk.item(w.limits)
			if walk.rng.IntN(3) == 0 {
				i = walk.holdItem(w.limits)
			}
			i.DryRun, i.Recorded = false, false
			d := w.decide(i)[0]
			if d.Result != driver.Refused || len(w.look().Holds) == 0 || d.RetryAt == w.now+driver.PlanLook {
				continue // or it is to ask again, since only a daemon's record can let it in
			}
			waited++
			began := w.now
			dry := i
			dry.DryRun = true
			if w.now = d.RetryAt - 1; w.now > began {
				if got := w.decide(dry)[0]; got.Result != driver.Refused || got.RetryAt != d.RetryAt {
					t.Fatalf("seed %d: %+v by %+v\nrefused at %d: %+v\nand just before its RetryAt %+v", seed, i, w.limits, began, d, got)
				}
			}
			w.now = d.RetryAt
			if got := w.decide(dry)[0]; got.Result != driver.Granted {
				t.Fatalf("seed %d: %+v by %+v\nrefused at %d: %+v\nand at its RetryAt %+v", seed, i, w.limits, began, d, got)
			}
			w.budget += "-next" // the clock never runs backwards
			break
		}
	}
	must.Equal(t, waited > 20, true, "refused beside a hold, of many", waited)
}
