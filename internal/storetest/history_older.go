package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// An older export brings no older numbers of a history, whichever way they come, and
// whichever rows another export has brought since. A newer one brings smaller ones too.
func testHistoryOfOlderExport(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 1000, time.Minute)}
	w.now = driver.HourOf(w.now) + minute
	row := driver.HistoryRow{Hour: driver.HourOf(w.now), Operation: "op", Job: "job", Region: "DE"}
	settled := driver.HistoryRow{Hour: row.Hour, Operation: "op", Job: "job", Region: "FR"}
	next := row
	next.Hour += hour
	source, imports := w.budget, 0
	copied := func(budget string) ledgerCopy { return must.Get(copyOf(w.store, budget, w.now))(t) }
	into := func(budget string, c ledgerCopy) {
		imports++
		w.importInto(budget, fmt.Sprint("e", imports), c, 0, c.rows, true)
	}
	w.granted(spentBy(item("a", "op", 5), "job", "DE"))
	w.granted(spentBy(lease(item("r", "op", 50), 2*time.Hour), "job", "FR"))
	w.now += second
	a1 := copied(source)
	into("up/b", a1)
	w.now += minute
	b1 := copied("up/b")
	w.granted(spentBy(item("b", "op", 5), "job", "DE"))
	w.finish(driver.Finish{ID: "r", Units: 20}, driver.Settled, false)
	w.now += second
	a2 := copied(source)
	w.now += hour
	w.granted(spentBy(item("c", "op", 3), "job", "DE"))
	a3 := copied(source)
	w.now += second
	late := copied("up/b") // of later, with the numbers of a1

	w.budget = "up/c"
	want := func(units, calls, later int64) {
		t.Helper()
		w.wantCharged(row, units, calls)
		w.wantCharged(settled, map[int64]int64{1: 50, 2: 20}[calls], 1)
		w.wantCharged(next, later, min(later, 1)) // one call, or none
	}
	into(w.budget, a1)
	want(5, 1, 0)
	into(w.budget, a2)
	want(10, 2, 0)
	for _, older := range []ledgerCopy{a1, b1, late} {
		into(w.budget, older)
		want(10, 2, 0)
		into(w.budget, a2)
		want(10, 2, 0)
	}
	into(w.budget, a3)
	want(10, 2, 3)
	into(w.budget, a2) // which has no row of the next hour
	want(10, 2, 3)

	// The instants go along: what c knows is newer than what b exports later.
	w.now += second
	c1 := copied(w.budget)
	w.budget = "up/d"
	into(w.budget, c1)
	want(10, 2, 3)
	into(w.budget, late)
	want(10, 2, 3)
	w.budget = "up/b"
	into(w.budget, c1)
	want(10, 2, 3)
	into(w.budget, a1)
	want(10, 2, 3)
}
