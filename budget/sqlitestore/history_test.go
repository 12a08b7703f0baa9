package sqlitestore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// by gives an item a job and a region.
func by(i driver.Item, job, region string) driver.Item {
	i.Labels = driver.Labels{Job: job, Region: region}
	return i
}

// fillDay charges for as many series as a day distinguishes: regions r0, r1, ….
func (b *bench) fillDay() {
	for from := 0; from < driver.MaxSeries; from += driver.MaxBatch {
		var items []driver.Item
		for i := from; i < from+driver.MaxBatch; i++ {
			items = append(items, by(item(fmt.Sprint("fill", i), 1), "j", fmt.Sprint("r", i)))
		}
		b.granted(items...)
	}
}

// A charge reads and writes single rows of the history, however many series the budget has:
// every step of every statement seeks a whole key, or the one row to be removed next.
func TestHistoryReadsSingleRows(t *testing.T) {
	b := newBench(t, rolling(1_000_000, minute))
	b.now = noon - noon%day
	b.fillDay()
	b.granted(by(lease(item("beyond", 1), 24*hour), "j", "beyond"), by(item("new", 1), "j", "r7"))
	b.now += hour
	b.granted(by(item("later", 1), "j", "r7"))
	must.Get(driver.FinishOne(t.Context(), b.store, name, b.now, driver.Finish{ID: "beyond", Units: 5}))(t)
	b.now += driver.HistoryKept + day
	b.granted(item("last", 1)) // and what is too old is removed
	check.Equal(t, query[int](t, b.path, "SELECT count(*) FROM history_day"), 1, "days")

	single := []string{
		"(budget=? AND operation=? AND job=? AND region=? AND ledger=?)", "(series=?", "(budget=? AND day=?)",
		"(rowid=?)", "(last<?)", // the last with LIMIT 1, in the order of the index
		"(budget=? AND day<?)", // days that are no longer kept
		"(budget=?)",           // whether there is any
	}
	plans := must.Get(sqlitestore.Plans(b.store))(t)
	check.Equal(t, len(plans) >= 8, true, "statements:", len(plans))
	for query, steps := range plans {
		for _, step := range steps {
			if strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" ||
				strings.HasPrefix(step, "SEARCH") && !slices.ContainsFunc(single, func(key string) bool { return strings.Contains(step, key) }) ||
				strings.Contains(step, "(budget=?)") && !strings.HasPrefix(query, "DELETE FROM history_day") ||
				strings.Contains(step, "B-TREE") {
				t.Errorf("%s\n  %s", query, step)
			}
		}
	}
}

// Opening a file that does not count the series of its days adds the counts.
func TestOpenCountsSeries(t *testing.T) {
	b := newBench(t, rolling(1_000_000, 2*day))
	b.now = noon - noon%day
	b.fillDay()
	b.now += hour
	b.granted(by(item("again", 1), "j", "r7"))
	b.now += day
	b.granted(by(item("other day", 1), "j", "r7"))
	b.close()
	const ask = "SELECT group_concat(budget || ' ' || day || ' ' || series || ' ' || id) FROM (SELECT * FROM history_day ORDER BY day)"
	counts := query[string](t, b.path, ask)
	must.Equal(t, strings.Count(counts, " 1024 "), 1, "a full day in", counts)
	for _, change := range toSeventh {
		execute(t, b.path, change)
	}
	b.open()
	check.Equal(t, query[string](t, b.path, ask), counts, "days, their series and ids")
}

func TestHistoryOutlivesTheLedger(t *testing.T) {
	b := newBench(t)
	storetest.HistoryOutlives(t, b.store, b.now, func(string) {
		execute(t, b.path, "UPDATE budget SET name = NULL, idle_at = 0") // as an idle one is deleted
	})
}

// What waits in the row of an idle budget is in the history once, even if deleting it takes
// several transactions.
func TestHistoryOfALedgerDeletedInSteps(t *testing.T) {
	b := newBench(t, rolling(1000, day))
	for i := range 30 {
		must.Get(b.try("up/idle", item(fmt.Sprint("e", i), 2)))(t)
	}
	sqlitestore.SetSteps(b.store, 25, 25)
	b.now += day + driver.WindowIdle + hour + minute
	for i := range 5 {
		b.granted(item(fmt.Sprint("b", i), 1))
	}
	must.Equal(t, query[int](t, b.path, "SELECT count(*) FROM budget"), 1, "budgets")
	past := must.Get(b.store.History(t.Context(), driver.HistoryQuery{Budget: "up/idle", Now: b.now}))(t)
	if len(past.Rows) != 1 || past.Rows[0].Units != 60 || past.Rows[0].Calls != 30 {
		t.Errorf("%+v, want 60 units of 30 calls", past.Rows)
	}
}

// An export has the hours that are shown, however long ago the ledger was last used.
func TestExportHistoryShown(t *testing.T) {
	b := newBench(t, rolling(10, minute))
	b.granted(item("a", 1))
	for ago, rows := range map[int64]int{driver.HistoryKept + hour - 1: 1, driver.HistoryKept + hour: 0} {
		b.now = noon + ago
		var c counted
		must.Do(t, b.store.Export(t.Context(), driver.Export{Budget: name, Now: b.now}, &c))
		check.Equal(t, int(c), rows, "rows of history after", ago)
	}
}

// counted counts the rows of an export's history.
// What waits in the budget's row is in the history as soon as the ledger is reset.
func TestHistoryRightAfterAReset(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	for i := range 3 {
		b.granted(by(item(fmt.Sprint("a", i), 2), "j", "r"))
	}
	must.Do(t, check.Err(b.store.Change(t.Context(), driver.Reset{Budget: name})))
	past := must.Get(b.store.History(t.Context(), driver.HistoryQuery{Budget: name, Now: b.now}))(t)
	if len(past.Rows) != 1 || past.Rows[0].Units != 6 || past.Rows[0].Calls != 3 {
		t.Errorf("%+v, want 6 units of 3 calls", past.Rows)
	}
}

type counted int

func (*counted) Head(driver.LedgerHead) error { return nil }

func (c *counted) Row(row driver.Row) error {
	if row.State == driver.RowHistory {
		*c++
	}
	return nil
}

func TestHistoryBegins(t *testing.T) {
	b := newBench(t)
	without := must.Get(sqlitestore.OpenWithClock(t.Context(), b.path, sqlitestore.Options{Timeout: patience, History: -1}, func() int64 { return b.now }))(t)
	t.Cleanup(func() { _ = without.Close() })
	storetest.HistoryBegins(t, without, b.store, b.now, func() storetest.Store {
		must.Do(t, sqlitestore.WriteOut(b.store, name))
		b.close()
		for _, change := range slices.Concat(toSeventh, []string{"DELETE FROM series", "DELETE FROM history"}) {
			execute(t, b.path, change)
		}
		b.open()
		return b.store
	})
}
