package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A refusal by two limits over more operations than a run has steps to begin with takes as few runs
// as one by fewer operations: it does not go on by one entry a run.
func TestRefusedOverManyOperations(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	f, _ := startFake(t)
	runs := countRuns(f.Store)
	week := limit.Limit{
		Name: "week", Limit: 1000, Counts: limit.CountUnits, Window: limit.CoarseWindow(7*24*time.Hour, 84*time.Hour),
		Shares: []limit.Share{{Name: "night", Jobs: []string{"night.*"}, Guarantee: 100}},
	}
	limits := []limit.Limit{rolling("w", 1000, 10*time.Second), week}
	decide := func(item driver.Item) driver.Decision {
		f.now++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{item}}))(t).Items[0]
	}
	var ends []int64 // of the reservations
	for k := range 400 {
		operation := fmt.Sprint("op", k%200)
		decide(driver.Item{ID: fmt.Sprint("plain", k), Operation: operation, Units: 1})
		held := decide(driver.Item{ID: fmt.Sprint("held", k), Operation: operation, Units: 1, Labels: driver.Labels{Job: "night.eu"}, Lease: time.Hour.Microseconds()})
		ends = append(ends, held.At+time.Hour.Microseconds())
	}
	before := runs.other.Load()
	got := decide(driver.Item{ID: "last", Operation: "op1", Units: 900})
	must.Equal(t, fmt.Sprint(got.Result, " ", got.RetryAt), fmt.Sprint(driver.Refused, " ", week.Window.Returns(ends[299])), "the refusal")
	if n := runs.other.Load() - before; n > 5 {
		t.Errorf("the refusal took %d runs", n)
	}
}

// A long walk over calls does not skip one of no units that the same run has charged, the first
// of its operation.
func TestLongWalkOfCallsWithoutUnits(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	f.SetMaxSteps(3)
	calls := rolling("calls", 4, time.Minute)
	calls.Counts = limit.CountCalls
	decide := func(items ...driver.Item) []driver.Decision {
		f.now += 10
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{calls}, Items: items}))(t).Items
	}
	decide(driver.Item{ID: "a", Operation: "op1", Units: 1})
	decide(driver.Item{ID: "b", Operation: "op2", Units: 2})
	got := decide(
		driver.Item{ID: "of no units", Operation: "op3"},
		driver.Item{ID: "open", Operation: "op3", Units: 1, Lease: time.Hour.Microseconds()},
		driver.Item{ID: "hold", Needs: []driver.Need{{Operation: "op1", Units: 3, Calls: 3}}, Units: 3, Lease: time.Second.Microseconds(), Fence: "~job/1"},
	)
	must.Equal(t, fmt.Sprint(got[2].Result, " ", got[2].RetryAt), fmt.Sprint(driver.Refused, " ", calls.Window.Returns(got[0].At)), "the hold waits for the third call")
}
