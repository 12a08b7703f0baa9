package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// shared divides a limit.
func shared(l limit.Limit, shares ...limit.Share) limit.Limit {
	l.Shares = shares
	return l
}

// share guarantees units to the jobs of a pattern, after which it is named.
func share(pattern string, guarantee int64) limit.Share {
	return limit.Share{Name: pattern, Jobs: []string{pattern}, Guarantee: guarantee}
}

// lapsing ends a guarantee that long before each reset.
func lapsing(s limit.Share, lapse time.Duration) limit.Share {
	s.Lapse = lapse.Microseconds()
	return s
}

// by charges an item to a job.
func by(job string, i driver.Item) driver.Item {
	i.Labels.Job = job
	return i
}

// kept asks for an item that must be refused until at, because each share keeps this many
// units.
func (w *world) kept(i driver.Item, at int64, kept ...int64) {
	w.t.Helper()
	d := w.decide(i)[0]
	if d.Result != driver.Refused || d.Limit != 0 || d.RetryAt != at || !slices.Equal(d.Kept, kept) {
		w.t.Fatalf("%s of %d units: %+v, want a refusal until %d (%+d µs off) with %d kept", i.ID, i.Units, d, at, d.RetryAt-at, kept)
	}
}

// usedBy is what the shares of the first limit have used.
func (w *world) usedBy() []int64 {
	w.t.Helper()
	return w.look().Limits[0].Shares
}

// A divided limit keeps its guarantees behind one that is not divided, and as they are
// changed from one charge to the next.
func testSharesBehind(t *testing.T, w *world) {
	plain, day := rolling("plain", 1000, 24*time.Hour), rolling("day", 10, 24*time.Hour)
	w.limits = []limit.Limit{plain, shared(day, share("nightly", 4))}
	for i := range 6 {
		w.granted(item(fmt.Sprint("a", i), "op", 1))
	}
	w.refused(item("b", "op", 1), 1, noon+24*hour)
	w.limits[1] = shared(day, share("nightly", 3))
	w.granted(item("b", "op", 1))
	w.refused(item("c", "op", 1), 1, noon+24*hour)
	w.limits[1] = shared(day, share("daily", 3))
	w.refused(by("nightly", item("c", "op", 1)), 1, noon+24*hour)
	w.granted(by("daily", item("c", "op", 3)))
}

// Within its guarantee a share is admitted whatever the others do. Alone it reaches the
// limit less what the others are guaranteed and have not spent.
func testShares(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(rolling("day", 100, 24*time.Hour), share("nightly", 30), share("feeds.*", 20))}
	w.granted(by("backfill", item("a", "op", 40)))
	w.kept(by("backfill", item("b", "op", 11)), noon+24*hour, 30, 20)
	w.kept(item("b", "op", 11), noon+24*hour, 30, 20)
	w.now += second
	w.granted(by("backfill", item("b", "op", 10)))
	w.granted(by("nightly", item("c", "op", 30)))
	w.kept(by("nightly", item("d", "op", 1)), noon+24*hour, 0, 20)
	w.granted(by("feeds.us", item("d", "op", 15)))
	w.kept(by("nightly", item("e", "op", 1)), noon+24*hour, 0, 5)
	w.granted(by("feeds.eu", item("e", "op", 5)))
	must.Equal(t, w.used(0), 100, "used")
	check.EqualSlices(t, w.usedBy(), []int64{30, 20}, "used by nightly and feeds")

	w.budget = "up/alone"
	w.now = noon
	w.granted(by("nightly", item("a", "op", 80)))
	w.kept(by("nightly", item("b", "op", 1)), noon+24*hour, 0, 20)
	w.granted(by("feeds.us", item("b", "op", 20)))
	check.EqualSlices(t, w.usedBy(), []int64{80, 20}, "used by nightly, who borrows 50, and feeds")
}

// The wait is exact: what returns to another share within its guarantee frees nothing,
// and what it has borrowed frees what it had beyond.
func testSharesWait(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(rolling("hour", 100, time.Hour), share("nightly", 30))}
	charge := func(id, job string, units int64) int64 {
		w.now += second
		w.granted(by(job, item(id, "op", units)))
		return w.now + hour
	}
	charge("a", "nightly", 10)
	charge("b", "nightly", 10)
	first := charge("c", "backfill", 5)
	charge("d", "nightly", 25) // 15 of these are borrowed
	charge("e", "backfill", 50)
	w.onTime(by("backfill", item("f", "op", 6)), 0, noon+second+hour) // a: 10 of the 15
	w.kept(by("backfill", item("g", "op", 10)), first, 0)
	w.onTime(by("backfill", item("g", "op", 9)), 0, noon+2*second+hour) // b: the last 5 beyond the guarantee
	w.kept(by("backfill", item("h", "op", 5)), first, 5)
	w.kept(by("backfill", item("i", "op", 6)), noon+5*second+hour, 5) // d returns to nightly, and frees nothing
}

// A share divides what was charged before it was configured, too, and charges of a host
// that does not know it.
func testSharesLater(t *testing.T, w *world) {
	plain := rolling("day", 100, 24*time.Hour)
	w.limits = []limit.Limit{plain}
	for i, job := range []string{"nightly", "backfill", "nightly", ""} {
		w.granted(by(job, item("before"+string(rune('a'+i)), "op", 10)))
	}
	w.granted(by("nightly", item("reserved", "other", 0)))
	w.limits = []limit.Limit{shared(plain, share("nightly", 50))}
	check.EqualSlices(t, w.usedBy(), []int64{20}, "used before the share was there")
	w.kept(by("backfill", item("a", "op", 31)), noon+24*hour+1, 30) // when the first charge but nightly's returns
	w.granted(by("backfill", item("a", "op", 30)))
	w.limits = []limit.Limit{plain}
	w.granted(by("nightly", item("b", "op", 5)))
	w.limits = []limit.Limit{shared(plain, share("nightly", 50))}
	check.EqualSlices(t, w.usedBy(), []int64{25}, "used, by hosts without shares too")
	w.finish(driver.Finish{ID: "before"}, driver.FinishExpired, false)
	d := w.decide(by("backfill", item("beforea", "op", 10)), by("nightly", item("b", "op", 5)))
	if !d[0].Replayed || d[0].First.Job != "nightly" || !d[1].Replayed {
		t.Fatalf("replays under another label, and after the move: %+v", d)
	}
}

// A look shows what each share has used before anything was charged with it, or at all: as
// much as after the first charge.
func testSharesLookedAt(t *testing.T, w *world) {
	plain := []limit.Limit{rolling("day", 100, 24*time.Hour), calendar(t, "month", 1000, limit.Month, "UTC")}
	var divided []limit.Limit
	for _, l := range plain {
		divided = append(divided, shared(l, share("nightly", 30), share("feeds.*", 20)))
	}
	shown := func(want ...int64) {
		t.Helper()
		for _, l := range w.look().Limits {
			check.EqualSlices(t, l.Shares, want, "used by the shares")
		}
	}
	w.limits = divided
	shown(0, 0)
	w.limits = plain
	for i, job := range []string{"nightly", "feeds.us", "feeds.eu", "", "backfill"} {
		w.granted(by(job, item(fmt.Sprint("a", i), "op", 5)))
	}
	w.granted(lease(by("nightly", item("reserved", "other", 7)), time.Hour))
	w.limits = divided
	shown(12, 10)
	w.granted(by("feeds.us", item("b", "op", 1)))
	shown(12, 11)
	w.now += 23 * hour // the lease has ended; what it held still counts
	w.limits = plain
	w.granted(by("nightly", item("c", "op", 2)))
	w.limits = []limit.Limit{shared(plain[0], share("nightly", 30), share("backfill", 5)), shared(plain[1], share("nightly", 30), share("backfill", 5))}
	shown(14, 5)
}

// A guarantee lapses before the reset. A call that counts in the next period must also fit
// there, where the guarantee is in force again.
func testSharesLapse(t *testing.T, w *world) {
	midnight := noon + 12*hour
	w.limits = []limit.Limit{shared(calendar(t, "day", 100, limit.Day, "UTC"), lapsing(share("nightly", 60), 3*time.Hour), share("feeds.*", 10))}
	w.granted(by("backfill", item("a", "op", 30)))
	w.kept(by("backfill", item("b", "op", 1)), midnight-3*hour, 60, 10)
	w.onTime(by("backfill", item("b", "op", 1)), 0, midnight-3*hour)
	w.granted(by("backfill", item("c", "op", 59)))
	w.kept(by("backfill", item("d", "op", 10)), midnight, 0, 10)
	w.granted(by("feeds.us", item("d", "op", 10)))
	w.now = midnight
	w.kept(by("backfill", item("e", "op", 31)), midnight+21*hour, 60, 10)
	w.granted(by("backfill", item("e", "op", 30)))

	w.budget = "up/across"
	w.now = midnight - hour
	w.granted(lease(by("backfill", item("a", "op", 30)), 2*time.Hour))
	w.kept(lease(by("backfill", item("b", "op", 1)), 2*time.Hour), midnight+21*hour, 60, 10)
	w.granted(lease(by("backfill", item("b", "op", 1)), time.Hour-5*time.Microsecond))
	w.granted(lease(by("nightly", item("c", "op", 59)), 2*time.Hour))
}

// A floor and a share are separate checks, and both must pass.
func testSharesFloor(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(rolling("day", 100, 24*time.Hour), share("nightly", 40))}
	floor := func(i driver.Item, units int64) driver.Item {
		i.Floor = units
		return i
	}
	w.granted(by("nightly", item("a", "op", 40)))
	w.kept(floor(by("backfill", item("b", "op", 11)), 50), noon+24*hour, 0)
	w.granted(floor(by("backfill", item("b", "op", 10)), 50))
	w.kept(by("backfill", item("c", "op", 51)), noon+24*hour+1, 0) // b: a frees nothing
	w.granted(by("backfill", item("c", "op", 50)))

	w.budget = "up/never"
	check.Equal(t, w.decide(by("backfill", item("a", "op", 61)))[0].Result, driver.NeverFits, "more than the others leave")
	check.Equal(t, w.decide(by("nightly", item("b", "op", 61)))[0].Result, driver.Granted, "a share that borrows")
}

// Guarantees above a limit that was lowered are scaled down in proportion.
func testSharesLowered(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(rolling("day", 50, 24*time.Hour), share("nightly", 60), share("feeds.*", 40))}
	w.granted(by("nightly", item("a", "op", 30)))
	w.kept(by("nightly", item("b", "op", 1)), noon+24*hour, 0, 20)
	w.granted(by("feeds.us", item("b", "op", 20)))
}

// Coarse limits merge entries, and keep their jobs apart.
func testSharesMerged(t *testing.T, w *world) {
	w.limits = []limit.Limit{shared(limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}, share("nightly", 50))}
	for i, job := range []string{"nightly", "backfill", "nightly"} {
		w.granted(by(job, item("a"+string(rune('a'+i)), "op", 10)))
	}
	w.now += 3 * hour
	w.granted(by("nightly", item("b", "op", 1)))
	check.EqualSlices(t, w.usedBy(), []int64{21}, "used by nightly, 20 of it merged")
	w.kept(by("backfill", item("c", "op", 41)), noon+24*hour+minute, 29) // the end of the slot of ab
	w.granted(by("backfill", item("c", "op", 40)))
}

// A ledger notes the share tables of its callers for an hour, in the order in which they came
// last, and tells since when it has known each.
func testShareTables(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 6*time.Hour)}
	decide := func(host, digest string) {
		t.Helper()
		must.Get(w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Table: driver.ShareTable{Host: host, Digest: digest}}))(t)
	}
	want := func(tables ...driver.NotedTable) {
		t.Helper()
		check.EqualSlices(t, w.look().Tables, tables, "tables")
	}
	noted := func(host, digest string, first, last int64) driver.NotedTable {
		return driver.NotedTable{ShareTable: driver.ShareTable{Host: host, Digest: digest}, First: first, Last: last}
	}
	decide("", "x")
	want()
	decide("a", "x")
	w.now += minute - 1
	decide("a", "x") // not noted again
	decide("b", "none")
	want(noted("a", "x", noon, noon), noted("b", "none", w.now, w.now))
	began := w.now
	w.now++
	decide("a", "x")
	decide("a", "y")
	want(noted("b", "none", began, began), noted("a", "x", noon, w.now), noted("a", "y", w.now, w.now))
	must.Do(t, check.Err(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget})))
	must.Equal(t, len(w.look().Tables), 3, "after a reset: tables")
	w.now = began + hour
	want(noted("a", "x", noon, began+1), noted("a", "y", began+1, began+1))
	w.now = began + 1 + hour
	want()
	decide("a", "x")
	want(noted("a", "x", w.now, w.now))
	for i := range driver.MaxTables + 3 {
		w.now++
		decide(fmt.Sprint("host", i), "z")
	}
	tables := w.look().Tables
	must.Equal(t, len(tables), driver.MaxTables, "tables")
	must.Equal(t, tables[0].Host, "host3", "the first of the latest")
}

// In a ledger with as many operations as it may have, charges of a share's job count in every
// limit that could cover them, and a retry of an early one is still a replay.
func testSharesCrowded(t *testing.T, w *world) {
	own := rolling("own", 5, time.Hour)
	own.Operations = []string{"b"}
	w.limits = []limit.Limit{shared(rolling("day", 100_000, 24*time.Hour), share("nightly", 100)), own}
	w.granted(by("nightly", item("first", "b", 1)))
	for i := range driver.MaxOperations + 10 {
		w.granted(item(fmt.Sprint("f", i), fmt.Sprint("op", i), 1))
	}
	must.Equal(t, w.decide(by("nightly", item("first", "b", 1)))[0].Replayed, true, "the first charge again")
	sum := int64(1)
	for i := range 10 {
		if w.decide(by("nightly", item(fmt.Sprint("b", i), "b", 1)))[0].Result == driver.Granted {
			sum++
		}
	}
	check.Equal(t, sum, 5, "granted by a limit of 5")
}
