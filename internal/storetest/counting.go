package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// An export of what limits count has every entry that counts in one of them, once, with what
// is needed to sum it, and neither history nor locks.
func testExportCounting(t *testing.T, w *world) {
	calls := limit.Limit{Name: "calls", Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(10 * time.Minute), Operations: []string{"search"}}
	open := limit.Limit{Name: "open", Limit: 9, Counts: limit.CountCalls, Window: limit.ConcurrentWindow(), Operations: []string{"list"}}
	hour := shared(rolling("hour", 1000, time.Hour, "search", "list"), share("nightly", 100))
	w.limits = []limit.Limit{hour, calls, open, rolling("day", 100_000, 24*time.Hour)}
	w.granted(item("gone", "search", 1))
	w.now += minute
	w.granted(by("nightly", item("early", "search", 2)))
	w.now += 52 * minute
	w.granted(item("free", "search", 0))
	w.granted(item("other", "upload", 4))
	w.granted(lease(by("nightly", item("held", "list", 5)), time.Hour))
	w.granted(lease(item("ended", "list", 6), time.Hour))
	w.granted(lease(item("never", "list", 7), time.Hour))
	w.now += 7 * minute
	w.finish(driver.Finish{ID: "ended", Units: 3}, driver.Settled, false)
	w.finish(driver.Finish{ID: "never", Release: true}, driver.Released, false)
	w.lock(driver.Lock{Limit: "hour", After: minute, Why: "403"})
	read := func(at int64, limits ...limit.Limit) (ids []string) {
		t.Helper()
		var c ledgerCopy
		must.Do(t, w.store.Export(context.Background(), driver.Export{Budget: w.budget, Now: w.now, Counting: driver.Counting{Limits: limits, At: at}}, &c))
		must.Equal(t, c.head.Ledger, w.look().Mark.Ledger, "ledger")
		must.Equal(t, len(c.head.Locks), 0, "locks")
		for _, row := range c.rows {
			counts := slices.ContainsFunc(limits, func(l limit.Limit) bool {
				amount := row.Units
				if l.Counts == limit.CountCalls {
					amount = row.Calls
				}
				return l.Covers(row.Operation) && amount > 0 && row.Score > l.Window.Cut(at) && (l.Window.Kind != limit.Concurrent || row.State == driver.RowOpen)
			})
			must.Equal(t, row.State == driver.RowHistory || row.State == driver.RowReleased, false, "counts nowhere", row)
			if counts {
				ids = append(ids, row.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	check.EqualSlices(t, read(w.now, hour), []string{"early", "ended", "held"}, "counted by the hour")
	check.EqualSlices(t, read(w.now-2, hour), []string{"early", "ended", "gone", "held"}, "counted by the hour 2 µs ago")
	check.EqualSlices(t, read(w.now, calls), []string{"free"}, "counted by the calls")
	check.EqualSlices(t, read(w.now, open), []string{"held"}, "counted by the open reservations")
	check.EqualSlices(t, read(w.now, w.limits...), []string{"early", "ended", "free", "gone", "held", "other"}, "counted by any")
	w.budget = "up/none"
	var none ledgerCopy
	must.Do(t, w.store.Export(context.Background(), driver.Export{Budget: w.budget, Now: w.now, Counting: driver.Counting{Limits: w.limits, At: w.now}}, &none))
	must.Equal(t, len(none.rows), 0, "rows without a ledger")
}
