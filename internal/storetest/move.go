package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// exported exports the ledger at the world's instant, without its history.
func (w *world) exported() ledgerCopy {
	w.t.Helper()
	c := must.Get(copyOf(w.store, w.budget, w.now))(w.t)
	c.rows = slices.DeleteFunc(c.rows, func(r driver.Row) bool { return r.State == driver.RowHistory })
	return c
}

// importInto imports rows of an export into another budget of the store.
func (w *world) importInto(budget, export string, c ledgerCopy, from int64, rows []driver.Row, last bool) driver.Imported {
	w.t.Helper()
	return must.Get(driver.Apply(context.Background(), w.store, driver.Import{
		Budget: budget, Now: w.now, Limits: w.limits, Export: export, Head: c.head, From: from, Rows: rows, Last: last,
	}))(w.t)
}

// A ledger is moved whole: its entries, open reservations and locks.
func testMove(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour), rolling("search", 50, time.Minute, "search.list")}
	labelled := item("a", "search.list", 7)
	labelled.Labels = driver.Labels{Job: "j", Region: "US", Run: "j/1"}
	w.granted(labelled)
	w.now += second
	w.granted(lease(item("settled", "op", 5), time.Hour))
	w.finish(driver.Finish{ID: "settled", Units: 9}, driver.Settled, false)
	w.granted(lease(item("released", "op", 5), time.Hour))
	w.finish(driver.Finish{ID: "released", Release: true}, driver.Released, false)
	w.granted(lease(item("open", "op", 20), 10*time.Minute))
	w.granted(lease(item("later", "op", 1), 10*time.Minute))
	w.now += second
	w.report(driver.Report{Limit: "w", Used: 40}, 3, 3, w.now+hour)
	w.lock(driver.Lock{Limit: "search", After: minute, Why: "403"})
	w.now += second
	before, copied := w.look(), w.exported()
	must.Equal(t, len(copied.rows), 6, "rows of", copied)
	w.finish(driver.Finish{ID: "later", Units: 4}, driver.Settled, false)
	source := w.budget
	settled := w.exported()

	must.Equal(t, w.importInto("up/moved", "one", copied, 0, copied.rows[:2], false), driver.Imported{Now: w.now, Done: 2, Added: 2})
	must.Equal(t, w.importInto("up/moved", "one", copied, 3, copied.rows[3:], true), driver.Imported{Now: w.now, Done: 2}, "rows are missing in between")
	must.Equal(t, w.importInto("up/moved", "one", copied, 0, copied.rows[:2], false), driver.Imported{Now: w.now, Done: 2}, "the same again")
	must.Equal(t, w.importInto("up/moved", "one", copied, 1, copied.rows[1:], true), driver.Imported{Now: w.now, Done: 6, Added: 4}, "one of them again")
	for _, wrong := range []driver.Import{{From: 6, Last: true}, {Rows: make([]driver.Row, driver.MaxImport+1)}} {
		wrong.Budget, wrong.Now, wrong.Limits, wrong.Export, wrong.Head = "up/moved", w.now, w.limits, "one", copied.head
		_, err := driver.Apply(context.Background(), w.store, wrong)
		check.Is(t, err, driver.ErrInvalid)
		check.Equal(t, errors.Is(err, driver.ErrUnavailable), false, "the store is out of reach:", err)
	}
	w.budget = "up/moved"
	after := w.look()
	must.Equal(t, len(after.Limits), len(before.Limits))
	for i := range after.Limits {
		check.Equal(t, fmt.Sprint(after.Limits[i]), fmt.Sprint(before.Limits[i]), w.limits[i].Name)
	}
	w.wantLocks(before.Locks...)
	again := w.decide(labelled, lease(item("settled", "op", 5), time.Hour), lease(item("released", "op", 5), time.Hour), item("settled", "op", 5))
	if again[0].First != labelled.Labels || again[1].Ended != driver.EndedSettled || again[2].Ended != driver.EndedReleased || again[3].Result != driver.Conflict {
		t.Fatalf("replays of what was moved: %+v", again)
	}
	w.finish(driver.Finish{ID: "open", Units: 2}, driver.Settled, false)
	must.Equal(t, w.used(0), before.Limits[0].Used-18, "used after the reservation was settled")

	// The source continues and is moved again: only what ended since then changes anything.
	must.Equal(t, w.importInto("up/moved", "two", settled, 0, settled.rows, true), driver.Imported{Now: w.now, Done: 6, Added: 1, Known: 5}, "another export")
	must.Equal(t, w.used(0), before.Limits[0].Used-18+3, "used after what was settled at the source")
	w.budget = source
	must.Equal(t, w.used(0), before.Limits[0].Used+3, "used at the source")
}

// Two charges with the same id that differ both count.
func testMoveConflict(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	w.granted(item("a", "op", 30))
	w.granted(item("b", "op", 1))
	copied := w.exported()
	w.budget = "up/other"
	w.granted(item("a", "op", 5))
	w.granted(item("b", "op", 1))
	must.Equal(t, w.importInto(w.budget, "one", copied, 0, copied.rows, true), driver.Imported{Now: w.now, Done: 2, Added: 1, Known: 1})
	must.Equal(t, w.used(0), 36)
	must.Equal(t, w.importInto(w.budget, "two", copied, 0, copied.rows, true), driver.Imported{Now: w.now, Done: 2, Known: 2}, "by another export")
	must.Equal(t, w.used(0), 36)
}

// A charge whose id another ledger had given away has its own id again at home, and is not
// taken for a merged row of the same number.
func testMoveConflictHome(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("w", 1000, 24*time.Hour, time.Minute)}
	w.granted(item("1", "op", 200))
	w.now += 2 * hour
	w.granted(item("2", "op", 1)) // and the first is merged as number 1
	w.granted(item("1", "op", 100))
	source, copied := w.budget, w.exported()
	must.Equal(t, len(copied.rows), 3, "rows of", copied)
	w.budget = "up/other"
	w.granted(item("1", "op", 5))
	must.Equal(t, w.importInto(w.budget, "one", copied, 0, copied.rows, true).Added, 3)
	must.Equal(t, w.used(0), 306)
	back := w.exported()
	w.budget = source
	must.Equal(t, w.importInto(source, "back", back, 0, back.rows, true).Added, 1, "the other ledger's own charge")
	must.Equal(t, w.used(0), 306)
	again := w.exported()
	w.budget = "up/other"
	must.Equal(t, w.importInto(w.budget, "again", again, 0, again.rows, true).Added, 0, "there again")
	must.Equal(t, w.used(0), 306)
}

// Merged rows are moved once per file, and are recognised where they come from.
func testMoveMerged(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("w", 100, 24*time.Hour, time.Minute)}
	w.granted(item("a", "op", 30))
	w.now += 2 * hour
	w.granted(item("b", "op", 1)) // and what is an hour old is merged
	source, copied := w.budget, w.exported()
	must.Equal(t, len(copied.rows), 2, "rows of", copied)
	must.Equal(t, copied.rows[0].State, driver.RowMerged)
	must.Equal(t, w.importInto("up/moved", "one", copied, 0, copied.rows, true).Added, 2)
	must.Equal(t, w.importInto("up/moved", "one", copied, 0, copied.rows, true).Added, 0, "again")
	w.budget = "up/moved"
	w.granted(item("c", "op", 10))
	back := w.exported()
	w.budget = source
	must.Equal(t, w.importInto(source, "back", back, 0, back.rows, true), driver.Imported{Now: w.now, Done: 3, Added: 1, Known: 2}, "moved back")
	must.Equal(t, w.used(0), 41)
}

// Charges that no longer count are not moved; a store whose clock is far behind accepts
// nothing.
func testMoveLater(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 2*time.Hour)}
	w.granted(item("a", "op", 30))
	w.now += hour
	w.granted(item("b", "op", 1))
	copied := w.exported()
	w.now += hour - 1
	must.Equal(t, w.importInto("up/soon", "one", copied, 0, copied.rows, true), driver.Imported{Now: w.now, Done: 2, Added: 2}, "a microsecond before the first returns")
	w.now++
	must.Equal(t, w.importInto("up/moved", "one", copied, 0, copied.rows, true), driver.Imported{Now: w.now, Done: 2, Added: 1, Gone: 1})
	w.now = copied.head.At - 2*minute
	_, err := driver.Apply(context.Background(), w.store, driver.Import{Budget: "up/behind", Now: w.now, Limits: w.limits, Export: "one", Head: copied.head, Rows: copied.rows, Last: true})
	w.wantError(err, driver.ErrClock)
	w.budget = "up/none"
	check.Equal(t, w.exported().head.Ledger, "", "the ledger of a budget that has none")
}

// When several ledgers found drift in the same limit, the largest counts, for as long as the
// longest of them.
func testMoveDrift(t *testing.T, w *world) {
	w.limits = []limit.Limit{calendar(t, "day", 100, "day", "UTC"), rolling("hour", 50, time.Hour)}
	source := w.budget
	w.report(driver.Report{Limit: "day", Used: 10}, 10, 10, noon+12*hour)
	first := w.exported()
	must.Equal(t, w.importInto("up/moved", "one", first, 0, first.rows, true).Added, 1)
	w.report(driver.Report{Limit: "day", Used: 30}, 20, 30, noon+12*hour)
	second := w.exported()
	must.Equal(t, w.importInto("up/moved", "two", second, 0, second.rows, true).Added, 1, "the same row with more units")
	w.budget = "up/moved"
	must.Equal(t, w.used(0), 30, "used")

	w.budget = "up/other"
	w.report(driver.Report{Limit: "hour", Used: 20}, 20, 20, noon+hour)
	w.now += 10 * minute
	w.budget = source
	w.report(driver.Report{Limit: "hour", Used: 5}, 5, 5, w.now+hour)
	later := w.exported()
	must.Equal(t, w.importInto("up/other", "one", later, 0, later.rows, true).Added, 2, "the day's row, and the hour's until later")
	w.budget = "up/other"
	must.Equal(t, w.used(1), 20, "used")
	w.refused(item("a", "op", 31), 1, w.now+hour)
}

// A bucket counts what was imported as if it began then.
func testMoveBucket(t *testing.T, w *world) {
	w.limits = []limit.Limit{bucket(t, "b", 10, 1, time.Second)}
	w.granted(item("a", "op", 10))
	w.now += 4 * second
	copied := w.exported()
	w.budget = "up/moved"
	w.granted(item("b", "op", 1))
	must.Equal(t, w.importInto(w.budget, "one", copied, 0, copied.rows, true).Added, 1)
	w.refused(item("c", "op", 5), 0, copied.rows[0].Score+5*second+second)
}

// Rows of the past are merged before a bucket is filled again: it finds them at the ends of
// their slots.
func testMoveBucketMerged(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("w", 100, 24*time.Hour, time.Hour), bucket(t, "b", 10, 1, time.Hour)}
	w.now += 10 * minute
	w.granted(item("a", "op", 10))
	w.now += 3 * hour
	copied := w.exported()
	w.budget = "up/moved"
	must.Equal(t, w.importInto(w.budget, "one", copied, 0, copied.rows, true).Added, 1)
	w.refused(item("b", "op", 3), 1, noon+4*hour)
}

// A row of the past that would be merged keeps its units and loses its id.
func testMoveIntoMerged(t *testing.T, w *world) {
	w.limits = []limit.Limit{coarse("w", 100, 24*time.Hour, time.Minute)}
	w.granted(item("a", "op", 30))
	copied := w.exported()
	w.now += 2 * hour
	w.budget = "up/moved"
	w.granted(item("b", "op", 1))
	must.Equal(t, w.importInto(w.budget, "one", copied, 0, copied.rows, true).Added, 1)
	must.Equal(t, w.granted(item("a", "op", 30)).Replayed, false, "a charge with the id that was merged is a replay")
	must.Equal(t, w.used(0), 61)
}
