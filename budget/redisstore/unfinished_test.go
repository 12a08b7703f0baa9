package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
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

// What survived is summed for each limit in as many script runs as that takes; a
// limit whose sum is done waits for the others, and does not begin again.
func TestRecoveryOfManyEntriesEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	defer func() { _ = admin.Close() }()
	f := openFake(t, server.URL(0))
	f.SetMaxSteps(3)
	counts := map[string]int{"a": 40, "b": 27, "c": 33}
	var limits []budget.Limit
	entries := 0
	for _, operation := range []string{"a", "b", "c"} {
		limits = append(limits, budget.Limit{Name: operation, Limit: 100, Counts: budget.CountUnits, Window: budget.RollingWindow(time.Hour), Operations: []string{operation}})
		entries += counts[operation]
	}
	at := f.now
	for operation, count := range counts {
		for i := range count {
			f.now++
			got, err := f.Decide(t.Context(), budget.Batch{Budget: name, Now: f.now, Limits: limits, Items: []budget.Item{{ID: fmt.Sprint(operation, i), Operation: operation, Units: 1}}})
			if err != nil || got.Items[0].Result != budget.Granted {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	}
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r := budget.Recovery{Budget: name, Now: f.now, Limits: limits, Used: []int64{5, 6, 7}, At: at, Mark: budget.Mark{ID: "lost", At: at}}
	got, err := f.Recover(t.Context(), r)
	if err != nil || fmt.Sprint(got.Amounts) != fmt.Sprint(r.Used) {
		t.Fatalf("%+v, %v; want %v", got, err, r.Used)
	}
	stats, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(stats)
	if runs, err := strconv.Atoi(calls[1]); err != nil || runs > entries {
		t.Fatalf("%d script runs for %d entries, %v", runs, entries, err)
	}
}
