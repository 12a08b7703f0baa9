package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// count counts refusals of the world's budget.
func (w *world) count(counts ...driver.RefusalCount) {
	w.t.Helper()
	must.Get(driver.Apply(context.Background(), w.store, driver.Refusals{Budget: w.budget, Now: w.now, Counts: counts}))(w.t)
}

// wantRows compares what a query answers.
func (w *world) wantRows(what string, q driver.HistoryQuery, want ...driver.HistoryRow) {
	w.t.Helper()
	q.Budget, q.Now = w.budget, w.now
	got, wanted := map[driver.HistoryRow]int{}, map[driver.HistoryRow]int{}
	for _, row := range must.Get(w.store.History(context.Background(), q))(w.t).Rows {
		got[row]++
	}
	for _, row := range want {
		wanted[row]++
	}
	if !maps.Equal(got, wanted) {
		w.t.Errorf("%s:\n got %+v\nwant %+v", what, got, wanted)
	}
}

// Refusals and waits add up beside what was charged, by hour, limit, operation and job, and
// only a query that asks for them sees them. A reset keeps them; they expire with their hour.
func testRefusals(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 10, time.Minute)}
	w.now = driver.HourOf(w.now) + minute
	begin := driver.HourOf(w.now)
	all := driver.HistoryQuery{Hours: true, Operations: true, Jobs: true, Regions: true, Refusals: true, Limits: true}
	before := driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Refused: 9}
	w.count(before)
	w.wantRows("without a ledger", all)
	w.granted(spentBy(item("a", "get", 7), "nightly", "DE"))
	charged := driver.HistoryRow{Hour: begin, Operation: "get", Job: "nightly", Region: "DE", Units: 7, Calls: 1}

	w.count(
		driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 3},
		driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 2, Waited: 1},
		driver.RefusalCount{Hour: begin - hour, Limit: "day", Operation: "list", Refused: 4},
		driver.RefusalCount{Hour: begin + 5*hour, Operation: "get", Job: "nightly", Refused: 1}, // by a clock ahead, of the whole budget
	)
	w.wantRows("all", all, charged,
		driver.HistoryRow{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 5, Waited: 1},
		driver.HistoryRow{Hour: begin - hour, Limit: "day", Operation: "list", Refused: 4},
		driver.HistoryRow{Hour: begin, Operation: "get", Job: "nightly", Refused: 1})
	plain := all
	plain.Refusals = false
	w.wantRows("not asked for", plain, charged)
	w.wantRows("in all", driver.HistoryQuery{Refusals: true}, driver.HistoryRow{Units: 7, Calls: 1, Refused: 10, Waited: 1})
	w.wantRows("by limit", driver.HistoryQuery{Refusals: true, Limits: true},
		driver.HistoryRow{Units: 7, Calls: 1, Refused: 1}, driver.HistoryRow{Limit: "day", Refused: 9, Waited: 1})
	w.wantRows("by job", driver.HistoryQuery{Refusals: true, Jobs: true},
		driver.HistoryRow{Job: "nightly", Units: 7, Calls: 1, Refused: 6, Waited: 1}, driver.HistoryRow{Refused: 4})
	w.wantRows("by operation", driver.HistoryQuery{Refusals: true, Operations: true, Since: begin},
		driver.HistoryRow{Operation: "get", Units: 7, Calls: 1, Refused: 6, Waited: 1})

	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget}))(t)
	w.granted(item("b", "get", 1))
	w.wantRows("after a reset", driver.HistoryQuery{Refusals: true}, driver.HistoryRow{Units: 8, Calls: 2, Refused: 10, Waited: 1})
	check.Equal(t, w.used(0), 1, "used")
	w.now = begin + driver.HistoryKept
	w.granted(item("c", "get", 1))
	w.count(driver.RefusalCount{Hour: begin - hour, Limit: "day", Operation: "get", Refused: 7}) // too late
	w.wantRows("after the history's time", driver.HistoryQuery{Refusals: true}, driver.HistoryRow{Units: 9, Calls: 3, Refused: 6, Waited: 1})
	w.now += hour
	w.granted(item("d", "get", 1))
	w.wantRows("an hour later", driver.HistoryQuery{Refusals: true}, driver.HistoryRow{Units: 2, Calls: 2})
}

// A day tells driver.MaxSeries series apart, of charges and refusals. Refusals beyond them
// count for their limit alone, and no charge is lost.
func testRefusalsOfMany(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 1000, time.Hour)}
	begin := driver.HourOf(w.now)
	w.granted(item("a", "get", 1))
	for from := 0; from < driver.MaxSeries+driver.MaxRefusals; from += driver.MaxRefusals {
		var counts []driver.RefusalCount
		for i := range driver.MaxRefusals {
			counts = append(counts, driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: fmt.Sprint("j", from+i), Refused: 2})
		}
		w.count(counts...)
	}
	w.granted(spentBy(item("b", "get", 1), "nightly", "DE"))
	w.granted(item("c", "get", 1))
	w.count(driver.RefusalCount{Hour: begin, Limit: "day", Operation: "other", Waited: 1}, driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: "j7", Refused: 1})
	view := must.Get(w.store.History(context.Background(), driver.HistoryQuery{
		Budget: w.budget, Now: w.now, Operations: true, Jobs: true, Regions: true, Refusals: true, Limits: true,
	}))(t)
	rows := rowsOf(view)
	check.Equal(t, len(rows), driver.MaxSeries+1, "rows: the charges', most of the jobs', and the limit's")
	check.Equal(t, rows[driver.HistoryRow{Operation: "get"}], driver.HistoryRow{Units: 3, Calls: 3}, "charges")
	check.Equal(t, rows[driver.HistoryRow{Limit: "day", Operation: "get", Job: "j7"}], driver.HistoryRow{Refused: 3}, "a known job's")
	check.Equal(t, rows[driver.HistoryRow{Limit: "day"}], driver.HistoryRow{Refused: 2 * (driver.MaxRefusals + 1), Waited: 1}, "beyond")
}

// Counts of several writers add up, beside charges.
func testRefusalsTogether(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 1_000_000, time.Hour)}
	begin := driver.HourOf(w.now)
	w.granted(item("a", "get", 1))
	const writers, times = 4, 20
	errs := make(chan error, 2*writers*times)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for j := range times {
				_, err := w.tryDecide(w.now, item(fmt.Sprint(i, "-", j), "get", 1))
				errs <- err
				_, err = driver.Apply(context.Background(), w.store, driver.Refusals{Budget: w.budget, Now: w.now, Counts: []driver.RefusalCount{
					{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 1, Waited: 2},
				}})
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		check.NoError(t, err)
	}
	w.wantRows("all", driver.HistoryQuery{Refusals: true}, driver.HistoryRow{Units: writers*times + 1, Calls: writers*times + 1, Refused: writers * times, Waited: 2 * writers * times})
}

// A look says how many entries the ledger holds: one for each charge, none for a refusal.
func testEntries(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 10, time.Hour)}
	check.Equal(t, w.look().Entries, 0, "without a ledger")
	for i := range 5 {
		w.granted(item(fmt.Sprint("id", i), "get", 2))
	}
	check.Equal(t, w.decide(item("more", "get", 1))[0].Result, driver.Refused)
	w.count(driver.RefusalCount{Hour: driver.HourOf(w.now), Limit: "day", Operation: "get", Refused: 1})
	check.Equal(t, w.look().Entries, 5, "charges")
}

// A store lists the budgets of an upstream that have a ledger, and no others.
func testBudgets(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 10, time.Hour)}
	list := func(upstream string, most int) []string {
		names := must.Get(w.store.Budgets(context.Background(), upstream, most))(t)
		slices.Sort(names)
		return names
	}
	check.EqualSlices(t, list("up", 10), nil, "before any charge")
	for _, name := range []string{"up/a", "up/b.c-d_e", "up/Z", "upper/a", "up-2/a", "up0/a", "u/a"} {
		w.budget = name
		w.granted(item("id", "get", 1))
	}
	check.EqualSlices(t, list("up", 10), []string{"up/Z", "up/a", "up/b.c-d_e"}, "of up")
	check.Equal(t, len(list("up", 2)), 2, "at most two")
	check.EqualSlices(t, list("other", 10), nil, "of another")
}

// Refusals go with an export, once however often it is imported.
func testRefusalsMoved(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("day", 1000, time.Hour)}
	begin := driver.HourOf(w.now)
	w.granted(item("a", "get", 7))
	w.count(driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 3, Waited: 1}, driver.RefusalCount{Hour: begin, Operation: "get", Refused: 1})
	first := must.Get(copyOf(w.store, w.budget, w.now))(t)
	for _, row := range first.rows {
		check.NoError(t, row.Validate())
	}
	w.count(driver.RefusalCount{Hour: begin, Limit: "day", Operation: "get", Job: "nightly", Refused: 2})
	second := must.Get(copyOf(w.store, w.budget, w.now))(t)
	w.budget = "up/moved"
	for export, c := range []ledgerCopy{first, second, second} {
		w.importInto(w.budget, fmt.Sprint(export), c, 0, c.rows, true)
	}
	w.wantRows("moved", driver.HistoryQuery{Refusals: true, Limits: true, Jobs: true},
		driver.HistoryRow{Units: 7, Calls: 1, Refused: 1}, driver.HistoryRow{Limit: "day", Job: "nightly", Refused: 5, Waited: 1})
}
