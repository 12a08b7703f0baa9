package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// Goroutines that register operations at once, beside looks and settlements,
// never mix one list's keys with another's numbers.
func TestOperationsRegisteredAtOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{})
	limits := []limit.Limit{{Name: "all", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	for round := range 20 {
		key := fmt.Sprint("up/round", round)
		var all sync.WaitGroup
		for g := range 6 {
			all.Go(func() {
				for i := range 8 {
					operation := fmt.Sprintf("op-%d-%d", g, i)
					got, err := store.Decide(context.Background(), driver.Batch{
						Budget: key, Now: time.Now().UnixMicro(), Limits: limits,
						Items: []driver.Item{{ID: operation, Operation: operation, Units: 1}, {ID: operation + "-r", Operation: operation, Units: 1, Lease: time.Hour.Microseconds()}},
					})
					if err != nil || got.Items[0].Result != driver.Granted || got.Items[1].Result != driver.Granted {
						t.Errorf("%s: %+v, %v", operation, got, err)
						return
					}
					if _, err := driver.FinishOne(context.Background(), store, key, time.Now().UnixMicro(), driver.Finish{ID: operation + "-r", Release: true}); err != nil {
						t.Errorf("%s: %v", operation, err)
					}
				}
			})
		}
		all.Wait()
		view := must.Get(store.Look(t.Context(), driver.Look{Budget: key, Now: time.Now().UnixMicro(), Limits: limits}))(t)
		must.Equal(t, view.Limits[0].Used, 48, "used")
	}
}

// A ledger that begins anew may number its operations in another order: a
// process that remembers the old numbers finds out.
func TestOperationsInAnotherOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	one, two := openStore(t, server.URL(0), redisstore.Options{}), openStore(t, server.URL(0), redisstore.Options{})
	limits := []limit.Limit{
		{Name: "all", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		{Name: "search", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour), Operations: []string{"search"}},
	}
	ask := func(s *redisstore.Store, id, operation string) driver.Decision {
		t.Helper()
		got := must.Get(s.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Items: []driver.Item{{ID: id, Operation: operation, Units: 1}}}))(t)
		return got.Items[0]
	}
	ask(one, "a", "list")
	ask(one, "b", "search")
	must.Do(t, admin.FlushAll(t.Context()).Err())
	ask(two, "a", "search")
	ask(two, "b", "list")
	granted := 1
	for i := range 30 {
		if ask(one, fmt.Sprint(i), "search").Result == driver.Granted {
			granted++
		}
	}
	must.Equal(t, granted, 10, "a limit of 10 granted")
}

// A walk that goes over several runs ends, and is exact, while the clock moves,
// entries expire and a period begins in between.
func TestWalkUnderAMovingClock(t *testing.T) {
	t.Parallel()
	f := openFake(t, redistest.Start(t).URL(0))
	calendar := must.Get(limit.NewCalendar(limit.Hour, "UTC", 0))(t)
	const n = 400
	limits := []limit.Limit{
		{Name: "rolling", Limit: n, Counts: limit.CountUnits, Window: limit.RollingWindow(30 * time.Minute)},
		{Name: "calendar", Limit: n, Counts: limit.CountUnits, Window: limit.CalendarWindow(calendar)},
	}
	ask := func(limits []limit.Limit, item driver.Item) driver.Decision {
		t.Helper()
		got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{item}}))(t)
		return got.Items[0]
	}
	start := f.now // a full hour
	for i := range n {
		f.now = start + int64(i)*1_000_000
		must.Equal(t, ask(limits, driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: 1}).Result, driver.Granted, "charge", i)
	}
	f.SetMaxSteps(7)
	// Each run of the script finds the clock further on, over entries that return.
	f.now, f.ahead = start+30*60_000_000-5_000_000, 100_000
	if d := ask(limits[:1], driver.Item{ID: "rolling", Operation: "op", Units: n - 50}); d.Result != driver.Refused || d.RetryAt != start+int64(n-50-1)*1_000_000+30*60_000_000 {
		t.Fatalf("%+v, want a refusal until %d", d, start+int64(n-50-1)*1_000_000+30*60_000_000)
	}
	// In the next period nothing of the last counts: what was walked is void.
	f.ahead = 0
	f.now = start + 3600_000_000 - 2_000_000
	f.SetMaxSteps(2000)
	must.Equal(t, ask(limits[1:], driver.Item{ID: "r", Operation: "op", Units: 0, Lease: 3 * 3600_000_000}).Result, driver.Granted)
	limits[1].Limit = n + 100
	must.Equal(t, ask(limits[1:], driver.Item{ID: "long", Operation: "op", Units: 100, Lease: 3 * 3600_000_000}).Result, driver.Granted)
	f.SetMaxSteps(7)
	f.ahead = 100_000
	d := ask(limits[1:], driver.Item{ID: "x", Operation: "op", Units: n + 50})
	must.Equal(t, d.Result, driver.Refused)
	must.Equal(t, d.RetryAt, start+4*3600_000_000)
}

// A walk that a new period interrupts begins anew, whenever the period comes:
// long reservations lie beyond its start and still count.
func TestWalkOverAPeriodsStart(t *testing.T) {
	t.Parallel()
	f := openFake(t, redistest.Start(t).URL(0))
	calendar := must.Get(limit.NewCalendar(limit.Hour, "UTC", 0))(t)
	limits := []limit.Limit{{Name: "hour", Limit: 1000, Counts: limit.CountUnits, Window: limit.CalendarWindow(calendar)}}
	start := f.now
	const hour = 3600_000_000
	for k := range 60 {
		key := fmt.Sprint("up/", k)
		decide := func(items ...driver.Item) []driver.Decision {
			t.Helper()
			got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: key, Now: f.now, Limits: limits, Items: items}))(t)
			return got.Items
		}
		f.now, f.ahead = start+1_000_000, 0
		f.SetMaxSteps(2000)
		var items []driver.Item
		for i := range 120 {
			item := driver.Item{ID: fmt.Sprint(i), Operation: "op", Units: 1}
			if i >= 60 {
				item.Lease = 2 * hour
			}
			if i >= 110 {
				item.Lease = 5 * hour
			}
			items = append(items, item)
		}
		decide(items...)
		f.now, f.ahead = start+hour-int64(k)*100_000, 100_000
		f.SetMaxSteps(7)
		if d := decide(driver.Item{ID: "all", Operation: "op", Units: 1000})[0]; d.Result != driver.Refused || d.RetryAt != start+6*hour {
			t.Errorf("%d00 ms before the period's end: %+v, want a refusal until %d", k, d, start+6*hour)
		}
	}
}
