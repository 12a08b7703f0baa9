package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/redisstore/redistest"
)

// In the midst of a batch much leaves the window, more than a script run takes off
// it: the next item waits until all is off.
func TestItemAfterMuchHasLeft(t *testing.T) {
	t.Parallel()
	f := openFake(t, redistest.Start(t).URL(0))
	f.SetMaxSteps(3)
	limits := []budget.Limit{{Name: "w", Limit: 12, Counts: budget.CountUnits, Window: budget.RollingWindow(time.Minute)}}
	decide := func(items ...budget.Item) {
		t.Helper()
		got, err := f.Decide(t.Context(), budget.Batch{Budget: name, Now: f.now, Limits: limits, Items: items})
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range got.Items {
			if d.Result != budget.Granted {
				t.Fatalf("%s: %+v", items[i].ID, d)
			}
		}
	}
	var ids []string
	for i := range 10 {
		ids = append(ids, fmt.Sprint("r", i))
		decide(budget.Item{ID: ids[i], Operation: []string{"a", "b"}[i%2], Units: 1, Lease: time.Hour.Microseconds()})
	}
	f.now += time.Second.Microseconds()
	for _, id := range ids { // all leave the window at one instant
		if done, err := f.Finish(t.Context(), budget.Finish{Budget: name, Now: f.now, ID: id, Units: 1}); err != nil || done.Result != budget.Settled {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	f.now += time.Minute.Microseconds() - 1
	one := func(id string, units int64) budget.Item { return budget.Item{ID: id, Operation: "a", Units: units} }
	decide(one("before", 1), one("a microsecond later", 1), one("fits then", 8))
}
