package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// testFence: calls behind a fence are not charged, replayed or decided, and others are
// not affected; earlier charges are settled.
func testFence(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("window", 100, time.Hour)}
	const zombie, other = "~trending/7", "~trending/8"
	item := func(id, fence string) driver.Item {
		return driver.Item{ID: id, Operation: "read", Units: 1, Fence: fence, Labels: driver.Labels{Job: "trending"}}
	}
	decide := func(want driver.Result, items ...driver.Item) {
		t.Helper()
		got := must.Get(w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Items: items}))(t)
		for i, d := range got.Items {
			check.Equal(t, d.Result, want, items[i].ID, "behind", items[i].Fence, "result")
			if want == driver.Fenced {
				check.Equal(t, d.Limit, -1, items[i].ID, "behind", items[i].Fence, "limit")
			}
		}
	}
	reserved := item("reserved", zombie)
	reserved.Lease = minute
	decide(driver.Granted, item("before", zombie), reserved)
	fence := driver.Lock{Budget: w.budget, Now: w.now, Limit: zombie, After: hour, Most: hour, Why: "the pass was lost", Force: true}
	for range 2 {
		if locked, err := driver.Apply(context.Background(), w.store, fence); err != nil || locked.Until == 0 {
			t.Fatalf("fence: %+v, %v", locked, err)
		}
	}
	dry := item("dry", zombie)
	dry.DryRun = true
	decide(driver.Fenced, item("after", zombie), item("before", zombie), dry)
	decide(driver.Granted, item("next", other), item("none", ""))
	recorded := item("recorded", zombie)
	recorded.Recorded = true
	decide(driver.Granted, recorded) // it has already happened
	done := must.Get(driver.FinishOne(context.Background(), w.store, w.budget, w.now, driver.Finish{ID: "reserved", Units: 5}))(t)
	must.Equal(t, done.Result, driver.Settled, "settle what was reserved before")
	late := item("late", zombie)
	late.Deadline = time.UnixMicro(w.now - hour)
	decide(driver.Late, late)
	w.now += hour
	decide(driver.Granted, item("later", zombie)) // the fence's end

	w.budget += "-new" // a ledger on which this store has not decided yet
	fence.Budget, fence.Now = w.budget, w.now
	if locked, err := driver.Apply(context.Background(), w.store, fence); err != nil || locked.Until == 0 {
		t.Fatalf("fence in a new ledger: %+v, %v", locked, err)
	}
	decide(driver.Fenced, item("first", zombie))
	decide(driver.Granted, item("second", other))
}
