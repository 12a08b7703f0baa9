package sqlitestore_test

import (
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// holdOf asks for a hold of an hour of a pass that may take a minute.
func holdOf(fence string, units, calls int64) driver.Item {
	return driver.Item{
		ID: "hold of " + fence, Needs: []driver.Need{{Operation: "op", Units: units, Calls: calls}}, Units: units,
		Span: minute, Lease: hour, Fence: fence, Labels: driver.Labels{Job: "daily"},
	}
}

// Processes that share a file draw from one hold and give back to it, and so does one that
// opens the file later. Once its lease has ended, the next decision leaves nothing of it.
func TestHoldIsShared(t *testing.T) {
	b := newBench(t, rolling(100, day))
	other := must.Get(sqlitestore.OpenWithClock(t.Context(), b.path, sqlitestore.Options{Timeout: patience}, func() int64 { return b.now }))(t)
	defer func() { must.Do(t, other.Close()) }()
	held := func() string { return query[string](t, b.path, "SELECT holds FROM budget") }
	draw := lease(item("a", 30), minute)
	draw.Fence = "~daily/7"

	b.granted(item("before", 1))
	check.Equal(t, held(), "", "the row of a ledger without holds")
	b.granted(holdOf(draw.Fence, 60, 3))
	own := b.store
	b.store = other
	b.granted(draw)
	b.store = own
	b.refused(item("b", 40), noon+hour)
	b.granted(item("c", 39))
	must.Get(driver.FinishOne(t.Context(), other, name, b.now, driver.Finish{ID: "a", Units: 10}))(t)
	b.close()
	b.open()
	left := must.Get(b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now}))(t).Holds
	must.Equal(t, len(left), 1, "holds")
	check.Equal(t, left[0].Left[0], driver.Need{Operation: "op", Units: 50, Calls: 2}, "left")
	b.refused(item("d", 1), noon+hour)

	b.now += hour
	b.granted(item("d", 50))
	check.Equal(t, held(), "", "the row once the hold has ended")
}

// A call waits for many holds to end, one after the other, beside many charges and a limit that
// counts no hold: it looks at them in steps.
func TestWaitBesideManyHolds(t *testing.T) {
	effort.Unraced(t)
	short := rolling(59, minute-second)
	short.Name, short.Counts = "short", limit.CountCalls
	b := newBench(t, rolling(1000, day), short)
	for i := range 300 {
		b.now += second
		b.granted(item(fmt.Sprint("used-", i), 2))
	}
	for i := range driver.MaxHolds {
		hold := holdOf(fmt.Sprint("~job/", i), 6, 1)
		hold.Lease = int64(i+1) * minute
		b.granted(hold)
	}
	check.Equal(t, b.decide(holdOf("~job/more", 1, 1))[0].Result, driver.Overflow, "one hold more")
	for steps, prune := range map[int]int{2000: 256, 10: 3} {
		sqlitestore.SetSteps(b.store, steps, prune)
		b.refused(item("a", 16+6*20), b.now+20*minute)
		b.refused(item("b", 400), b.now+driver.MaxHolds*minute)
		b.refused(item("c", 402), noon+second+day)
		b.refused(item("d", 500), noon+50*second+day)
	}
}
