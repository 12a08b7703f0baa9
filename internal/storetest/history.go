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

// history is what was charged since an instant, with all that rows can keep apart.
func (w *world) history(since int64) map[driver.HistoryRow]driver.HistoryRow {
	w.t.Helper()
	view := must.Get(w.store.History(context.Background(), driver.HistoryQuery{Budget: w.budget, Now: w.now, Since: since, Hours: true, Operations: true, Jobs: true, Regions: true}))(w.t)
	return rowsOf(view)
}

func (w *world) wantCharged(row driver.HistoryRow, units, calls int64) {
	w.t.Helper()
	check.Equal(w.t, w.history(0)[row], driver.HistoryRow{Units: units, Calls: calls}, "charged in", row)
}

// spentBy is an item of a job and a region.
func spentBy(i driver.Item, job, region string) driver.Item {
	i.Labels = driver.Labels{Job: job, Region: region, Run: job + "/1"}
	return i
}

// Every charge counts once, in the hour in which it was made, however it ends and
// whatever the ledger forgets.
func testHistory(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	begin := driver.HourOf(w.now)
	w.now = begin + hour - second
	row := driver.HistoryRow{Hour: begin, Operation: "search.list", Job: "nightly", Region: "DE"}
	w.granted(spentBy(item("a", "search.list", 7), "nightly", "DE"))
	must.Equal(t, w.decide(spentBy(item("a", "search.list", 7), "nightly", "DE"))[0].Replayed, true, "the same id")
	w.granted(spentBy(lease(item("late", "search.list", 5), 2*time.Hour), "nightly", "DE"))
	w.granted(spentBy(lease(item("back", "search.list", 50), 2*time.Hour), "nightly", "DE"))
	w.wantCharged(row, 62, 3)
	w.now += hour
	w.finish(driver.Finish{ID: "late", Units: 9}, driver.Settled, false)
	w.finish(driver.Finish{ID: "late", Units: 9}, driver.Settled, true)
	w.finish(driver.Finish{ID: "back", Release: true}, driver.Released, false)
	w.wantCharged(row, 16, 2)
	w.report(driver.Report{Limit: "w", Used: 40}, 31, 31, w.now+minute)
	w.wantCharged(driver.HistoryRow{Hour: begin + hour, Operation: limit.DriftOperation("w")}, 31, 0)
	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget}))(t)
	w.now += 3 * 24 * hour
	w.granted(item("b", "videos.list", 1))
	w.wantCharged(row, 16, 2)
	w.wantCharged(driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "videos.list"}, 1, 1)
	check.Equal(t, len(w.history(w.now)), 1, "rows since now")
	sum := must.Get(w.store.History(context.Background(), driver.HistoryQuery{Budget: w.budget, Now: w.now}))(t)
	slices.SortFunc(sum.Rows, func(a, b driver.HistoryRow) int { return int(a.Units - b.Units) })
	must.Equal(t, fmt.Sprint(sum.Rows), fmt.Sprint([]driver.HistoryRow{{Units: 17, Calls: 3}, {Operation: limit.DriftOperation("w"), Units: 31}}), "all")
}

// A day tells driver.MaxSeries apart; what is charged beyond them counts under its
// operation, and is corrected there.
func testHistoryOfMany(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1_000_000, time.Hour)}
	for from := 0; from < driver.MaxSeries; from += 64 {
		var items []driver.Item
		for i := from; i < from+64; i++ {
			items = append(items, spentBy(item(fmt.Sprint("id-", i), "op", 1), "job", fmt.Sprint("r", i)))
		}
		w.decide(items...)
	}
	begin := driver.HourOf(w.now)
	w.granted(spentBy(lease(item("more", "op", 5), time.Hour), "job", "beyond"))
	w.granted(spentBy(item("known", "op", 2), "job", "r7"))
	w.wantCharged(driver.HistoryRow{Hour: begin, Operation: "op"}, 5, 1)
	w.wantCharged(driver.HistoryRow{Hour: begin, Operation: "op", Job: "job", Region: "r7"}, 3, 2)
	w.finish(driver.Finish{ID: "more", Units: 8}, driver.Settled, false)
	w.wantCharged(driver.HistoryRow{Hour: begin, Operation: "op"}, 8, 1)
	check.Equal(t, len(w.history(0)), driver.MaxSeries+1, "series")
}

// Each day distinguishes driver.MaxSeries series of its own, the first of that day, however
// many there were on other days.
func testHistoryOfManyDays(t *testing.T, w *world) {
	const all, beyond = driver.MaxSeries + driver.MaxBatch, driver.MaxBatch
	w.limits = []limit.Limit{rolling("w", 1_000_000, time.Hour)}
	region := func(i int) string { return fmt.Sprint("r", i) }
	want := map[driver.HistoryRow]driver.HistoryRow{}
	for day := range 3 {
		first := day * 500 // the day's order of regions begins there
		for from := 0; from < all; from += driver.MaxBatch {
			var items []driver.Item
			for i := from; i < from+driver.MaxBatch; i++ {
				items = append(items, lease(spentBy(item(fmt.Sprint(day, "-", i), "op", 1), "job", region((first+i)%all)), 20*time.Hour))
			}
			for _, d := range w.decide(items...) {
				must.Equal(t, d.Result, driver.Granted)
			}
		}
		begin := driver.HourOf(w.now)
		for i := range driver.MaxSeries {
			want[driver.HistoryRow{Hour: begin, Operation: "op", Job: "job", Region: region((first + i) % all)}] = driver.HistoryRow{Units: 1, Calls: 1}
		}
		// In a later hour of the day too, known series are kept apart, and new ones are not.
		w.now += hour
		known, unknown := region(first), region((first+all-1)%all)
		w.granted(spentBy(item(fmt.Sprint(day, "-known"), "op", 3), "job", known))
		w.granted(spentBy(item(fmt.Sprint(day, "-unknown"), "op", 5), "job", unknown))
		want[driver.HistoryRow{Hour: begin + hour, Operation: "op", Job: "job", Region: known}] = driver.HistoryRow{Units: 3, Calls: 1}
		want[driver.HistoryRow{Hour: begin + hour, Operation: "op"}] = driver.HistoryRow{Units: 5, Calls: 1}
		// Settlements correct the day in which the charges were made.
		w.now += 15 * hour
		w.finish(driver.Finish{ID: fmt.Sprint(day, "-0"), Units: 10}, driver.Settled, false)
		w.finish(driver.Finish{ID: fmt.Sprint(day, "-", all-1), Units: 100}, driver.Settled, false)
		want[driver.HistoryRow{Hour: begin, Operation: "op", Job: "job", Region: known}] = driver.HistoryRow{Units: 10, Calls: 1}
		want[driver.HistoryRow{Hour: begin, Operation: "op"}] = driver.HistoryRow{Units: beyond + 99, Calls: beyond}
		w.now += 8 * hour
	}
	got := w.history(0)
	must.Equal(t, len(got), len(want), "rows")
	for row, sum := range want {
		must.Equal(t, got[row], sum, "charged in", row)
	}
}

// History goes with an export, once however often it is imported, beside what the other
// ledger charges itself.
func testHistoryMoved(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	row := driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "op", Job: "job", Region: "DE"}
	w.granted(spentBy(item("a", "op", 7), "job", "DE"))
	first := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.granted(spentBy(item("b", "op", 1), "job", "DE"))
	w.granted(spentBy(lease(item("r", "op", 50), time.Hour), "job", "DE"))
	between := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.finish(driver.Finish{ID: "r", Release: true}, driver.Released, false)
	w.granted(spentBy(lease(item("s", "op", 4), time.Hour), "job", "DE"))
	later := must.Get(copyOf(w.store, w.budget, w.now))(t)
	source := w.budget
	w.budget = "up/moved"
	w.granted(spentBy(item("c", "op", 2), "job", "DE"))
	for export, c := range []ledgerCopy{first, between, later, later} {
		w.importInto(w.budget, fmt.Sprint(export), c, 0, c.rows, true)
	}
	w.wantCharged(row, 14, 4)
	w.finish(driver.Finish{ID: "s", Release: true}, driver.Released, false) // what another ledger granted
	w.wantCharged(row, 10, 3)
	third := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.importInto("up/third", "third", third, 0, third.rows, true)
	w.budget = "up/third"
	w.wantCharged(row, 10, 3)
	w.budget = "up/moved"
	home := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.importInto(source, "home", home, 0, home.rows, true)
	w.budget = source
	w.wantCharged(row, 10, 3) // s was released in the other ledger, whose history takes it out
}

// anew has the budget's ledger begin anew with another id, as after a loss.
func (w *world) anew() {
	w.t.Helper()
	before := w.exported().head.Ledger
	must.Get(driver.Apply(context.Background(), w.store, driver.Recovery{Budget: w.budget, Now: w.now, Limits: w.limits, Gone: []string{before}, Used: []int64{-1}}))(w.t)
	must.Equal(w.t, w.exported().head.Ledger != before, true, "another id")
}

// A day of the history keeps its id when the ledger gets another one, so that two exports
// do not count twice, nor an import of what comes from here.
func testHistoryAnew(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	source, begin := w.budget, driver.HourOf(w.now)
	row := driver.HistoryRow{Hour: begin, Operation: "op", Job: "job", Region: "DE"}
	tomorrow := driver.HistoryRow{Hour: begin + 24*hour, Operation: "op", Job: "job", Region: "DE"}
	w.granted(spentBy(item("a", "op", 7), "job", "DE"))
	first := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.anew()
	w.granted(spentBy(item("b", "op", 7), "job", "DE"))
	second := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.now += 24 * hour
	w.granted(spentBy(item("c", "op", 5), "job", "DE"))
	third := must.Get(copyOf(w.store, w.budget, w.now))(t)

	w.budget = "up/moved"
	for export, c := range []ledgerCopy{first, second, third} {
		w.importInto(w.budget, fmt.Sprint(export), c, 0, c.rows, true)
	}
	w.wantCharged(row, 14, 2)
	w.wantCharged(tomorrow, 5, 1)
	back := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.budget = source
	for export, c := range []ledgerCopy{first, third, back} {
		w.importInto(w.budget, fmt.Sprint(export), c, 0, c.rows, true)
	}
	w.wantCharged(row, 14, 2)
	w.wantCharged(tomorrow, 5, 1)
}

// The end of a reservation changes the history only if the history has the charge.
func testHistoryUnnoted(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	row := driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "op", Job: "job", Region: "DE"}
	reserve := func(id string, units int64) { w.granted(spentBy(lease(item(id, "op", units), time.Hour), "job", "DE")) }
	reserve("before", 50)
	reserve("before, settled", 20)
	w.now += second
	unnoted := w.now
	w.now += second
	reserve("after", 4)
	copied := must.Get(copyOf(w.store, w.budget, w.now))(t)
	check.Equal(t, copied.head.Unnoted, 0, "the history lacks charges up to")
	copied.head.Unnoted = unnoted
	for i, r := range copied.rows {
		if r.State == driver.RowHistory {
			copied.rows[i].Units, copied.rows[i].Calls = 4, 1
		}
	}
	w.budget = "up/moved"
	w.importInto(w.budget, "one", copied, 0, copied.rows, true)
	w.wantCharged(row, 4, 1)
	w.finish(driver.Finish{ID: "before", Release: true}, driver.Released, false)
	w.finish(driver.Finish{ID: "before, settled", Units: 7}, driver.Settled, false)
	w.wantCharged(row, 4, 1)
	w.finish(driver.Finish{ID: "after", Units: 3}, driver.Settled, false)
	w.wantCharged(row, 3, 1)
	check.Equal(t, must.Get(copyOf(w.store, w.budget, w.now))(t).head.Unnoted, unnoted, "the copy's history lacks charges up to")
}

// HistoryBegins checks reservations of before a store kept history. without is a store that
// keeps none; with keeps it, for the same ledgers. upgrade turns their data into those of a
// version without history, and returns a store on them. The clock of both shows now.
func HistoryBegins(t *testing.T, without, with Store, now int64, upgrade func() Store) {
	t.Helper()
	w := &world{t: t, store: without, budget: "up/key1", now: now, limits: []limit.Limit{rolling("w", 1000, time.Minute)}}
	row := driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "op", Job: "job", Region: "DE"}
	reserve := func(id string, units int64) { w.granted(spentBy(lease(item(id, "op", units), time.Hour), "job", "DE")) }
	release := func(id string) { w.finish(driver.Finish{ID: id, Release: true}, driver.Released, false) }
	reserve("a", 50)
	reserve("b", 50)
	w.store = with
	reserve("c", 4)
	reserve("d", 4)
	release("a")
	w.wantCharged(row, 8, 2)
	release("c")
	w.wantCharged(row, 4, 1)
	w.store = upgrade()
	check.Equal(t, len(w.history(0)), 0, "rows of an older version")
	release("b")
	release("d")
	check.Equal(t, len(w.history(0)), 0, "rows after the releases")
	reserve("e", 9)
	reserve("f", 9)
	release("f")
	w.wantCharged(row, 9, 1)
}

// HistoryOutlives checks that the history of a budget whose ledger is gone is exported all
// the same, and that the charges of the next ledger go under the same id. gone has the store lose the
// budget's ledger. The store's clock shows now.
func HistoryOutlives(t *testing.T, store Store, now int64, gone func(budget string)) {
	t.Helper()
	w := &world{t: t, store: store, budget: "up/key1", now: now, limits: []limit.Limit{rolling("w", 1000, time.Minute)}}
	source, row := w.budget, driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "op", Job: "job", Region: "DE"}
	w.granted(spentBy(item("a", "op", 7), "job", "DE"))
	gone(w.budget)
	alone := must.Get(copyOf(w.store, w.budget, w.now))(t)
	check.Equal(t, alone.head.Ledger, "", "the id of a ledger that is gone")
	check.Equal(t, alone.head.At, w.now, "when it was exported")
	check.Equal(t, len(alone.rows), 1, "rows")
	w.importInto("up/moved", "alone", alone, 0, alone.rows, true)

	w.granted(spentBy(item("b", "op", 7), "job", "DE"))
	w.granted(spentBy(item("c", "op", 1), "job", "FR")) // and something new in the day
	next := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.importInto("up/moved", "next", next, 0, next.rows, true)
	w.budget = "up/moved"
	w.wantCharged(row, 14, 2)
	back := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.importInto(source, "back", back, 0, back.rows, true)
	w.budget = source
	w.wantCharged(row, 14, 2)
}

// History is kept for driver.HistoryKept.
func testHistoryKept(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	w.now = driver.HourOf(w.now)
	row := driver.HistoryRow{Hour: w.now, Operation: "op"}
	w.granted(item("a", "op", 7))
	w.now += driver.HistoryKept + hour - 1
	w.granted(item("b", "op", 1))
	w.wantCharged(row, 7, 1)
	w.now++
	w.granted(item("c", "op", 1))
	check.Equal(t, len(w.history(0)), 2, "rows")
}
