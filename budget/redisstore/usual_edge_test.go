package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// usualFake is a store with a clock of its own, the count of its runs, and what decides a batch
// of items by limits.
func usualFake(t *testing.T, limits ...limit.Limit) (*fakeStore, *usualRuns, func(items ...driver.Item) driver.Decisions) {
	t.Helper()
	f, _ := startFake(t)
	return f, countRuns(f.Store), func(items ...driver.Item) driver.Decisions {
		t.Helper()
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items, Host: "0a"}))(t)
	}
}

// What was charged before another operation was new to the ledger leaves its window all the same.
func TestUsualLeavesBesideANewOperation(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, limit.Limit{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)})
	decide(driver.Item{ID: "a", Operation: "first", Units: 7})
	f.now++
	decide(driver.Item{ID: "b", Operation: "second", Units: 5})
	f.now++
	decide(driver.Item{ID: "c", Operation: "second", Units: 3}) // the first run of usual.lua is sent by its text
	f.now += time.Second.Microseconds() - 2
	got := decide(driver.Item{ID: "d", Operation: "second", Units: 1})
	must.Equal(t, got.Used[0], 5+3+1, "used when the first charge has left")
	must.Equal(t, runs.decided.Load(), 2, "runs of usual.lua that decided")
}

// A reservation that ends within the batch it is in is not open any more for those after it.
func TestUsualEndsWithinABatch(t *testing.T) {
	t.Parallel()
	f, _, decide := usualFake(t, limit.Limit{Name: "open", Limit: 50, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()})
	open := func(id string, span int64) driver.Item {
		return driver.Item{ID: id, Operation: "op", Units: 1, Lease: span}
	}
	decide(open("first", time.Hour.Microseconds()))
	f.now++
	decide(open("second", time.Hour.Microseconds()))
	f.now++
	got := decide(open("a", 2), open("b", 100), open("c", 100), open("d", 100))
	for i, left := range []int64{47, 46, 45, 45} {
		must.Equal(t, fmt.Sprint(got.Items[i].Result, got.Items[i].Remaining), fmt.Sprint(driver.Granted, left), "item", i)
	}
	must.Equal(t, got.Used[0], 5, "open")
}

// A limit that covers other operations from one call to the next counts those.
func TestUsualOfOtherOperations(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	used := map[string]int64{}
	for n := range 24 {
		operation, covered := []string{"a", "b"}[n%2], []string{"a", "b"}[n/4%2]
		f.now++
		used[operation] += int64(n + 1)
		got := must.Get(f.Decide(t.Context(), driver.Batch{
			Budget: name, Now: f.now, Limits: []limit.Limit{rolling("w", 1000, time.Hour, covered)}, Host: "0a",
			Items: []driver.Item{{ID: fmt.Sprint(n), Operation: operation, Units: int64(n + 1)}},
		}))(t)
		must.Equal(t, got.Used[0], used[covered], "used of", covered, "after charge", n)
	}
}

// A charge beside a limit on open reservations takes one run, though it opens none.
func TestUsualBesideALimitOnOpenReservations(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t,
		limit.Limit{Name: "open", Limit: 50, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		limit.Limit{Name: "w", Limit: 50, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
	)
	for n := range 12 {
		f.now++
		got := decide(driver.Item{ID: fmt.Sprint(n), Operation: "op", Units: 1})
		must.Equal(t, fmt.Sprint(got.Used), fmt.Sprint([]int64{0, int64(n + 1)}), "used")
	}
	must.Equal(t, runs.left.Load(), 0, "runs of usual.lua that left their charge to charge.lua")
	must.Equal(t, runs.decided.Load(), 11, "runs of usual.lua that decided")
}

// What is charged after a calendar's reset counts in the next period alone.
func TestUsualAfterAReset(t *testing.T) {
	t.Parallel()
	hour := must.Get(limit.NewCalendar(limit.Hour, "UTC", 0))(t)
	f, _, decide := usualFake(t, limit.Limit{Name: "c", Limit: 100, Counts: limit.CountUnits, Window: limit.CalendarWindow(hour)})
	f.now += time.Hour.Microseconds() - 10
	for i := range 3 {
		f.now++
		decide(driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: 5})
	}
	f.now += 7
	must.Equal(t, decide(driver.Item{ID: "after", Operation: "op", Units: 2}).Used[0], 2, "used at the reset")
}

// What is in a slot that has not left a coarse window stays counted.
func TestUsualKeepsSlots(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, limit.Limit{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.CoarseWindow(10*time.Second, time.Second)})
	noon := f.now
	for i, at := range []int64{500_000, 1_200_000, 1_300_000, 11_300_000} {
		f.now = noon + at
		got := decide(driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: []int64{7, 5, 3, 1}[i]})
		must.Equal(t, got.Used[0], []int64{7, 12, 15, 9}[i], "used after charge", i)
	}
	must.Equal(t, runs.decided.Load(), 3, "runs of usual.lua that decided")
}

// However many charges of an operation leave its window at once, all of them leave: one, which is
// the usual case, some, and so many that charge.lua is left to read them.
func TestUsualLeavesSeveral(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		leave int
		usual bool
	}{{1, true}, {2, true}, {3, true}, {265, true}, {266, false}, {400, false}} { // three of four have units
		f, runs, decide := usualFake(t, rolling("w", 1_000_000, time.Second))
		var items []driver.Item
		for i := range test.leave {
			items = append(items, driver.Item{ID: fmt.Sprint("leaves", i), Operation: "a", Units: []int64{7, 12, 0, 100}[i%4]})
		}
		decide(items...)
		f.now += time.Second.Microseconds() / 2
		stays := decide(driver.Item{ID: "stays", Operation: "a", Units: 30})
		f.now++
		decide(driver.Item{ID: "other", Operation: "b", Units: 5})
		f.now++
		decide(driver.Item{ID: "sends", Operation: "b", Units: 5}) // the first run of usual.lua is sent by its text
		before := runs.decided.Load()
		f.now += time.Second.Microseconds()/2 - 3 + int64(test.leave) // the last leaves at this instant
		got := decide(driver.Item{ID: "next", Operation: "b", Units: 1})
		must.Equal(t, got.Used[0], 30+5+5+1, "used when", test.leave, "have left")
		must.Equal(t, runs.decided.Load()-before == 1, test.usual, "usual.lua decided when", test.leave, "had left")
		f.now = stays.Items[0].At + time.Second.Microseconds()
		got = decide(driver.Item{ID: "last", Operation: "b", Units: 1})
		must.Equal(t, got.Used[0], 5+5+1+1, "used when the one that stayed has left too")
	}
}

// What left a coarse window at the first instant of a slot does not leave it again with the slot
// after it.
func TestUsualLeavesOnce(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, limit.Limit{Name: "w", Limit: 100, Counts: limit.CountUnits, Window: limit.CoarseWindow(10*time.Second, time.Second)})
	second := time.Second.Microseconds()
	began := f.now - f.now%second + second
	charge := func(after int64, operation string, units int64) int64 {
		f.now = began + after
		return decide(driver.Item{ID: fmt.Sprint(after), Operation: operation, Units: units}).Used[0]
	}
	charge(0, "a", 3)
	charge(second/4, "a", 7)
	charge(second/2, "b", 5)
	charge(second/2+1, "b", 1)
	decided := runs.decided.Load()
	must.Equal(t, charge(10*second, "b", 1), 7+5+1+1, "used when the first has left")
	must.Equal(t, charge(11*second, "b", 1), 1+1, "used when its slot has left")
	must.Equal(t, runs.decided.Load()-decided, 2, "decisions of usual.lua")
}
