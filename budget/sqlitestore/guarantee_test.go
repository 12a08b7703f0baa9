package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestGuarantees(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	storetest.Guarantees(t, store, &clock)
	must.Do(t, store.Close())
}

func TestShareWalkBounded(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	sqlitestore.SetSteps(store, 50, 50)
	transactions := 0
	sqlitestore.SetPaused(store, func() { transactions++ })
	storetest.ShareWalkBounded(t, store, &clock, func() int { return transactions })
	must.Do(t, store.Close())
}

func TestShareWalkAmongCharges(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	sqlitestore.SetSteps(store, 50, 50)
	transactions := 0
	var amid func()
	sqlitestore.SetPaused(store, func() {
		if transactions++; amid != nil {
			amid()
		}
	})
	storetest.ShareWalkAmongCharges(t, store, &clock, func(f func()) { amid = f }, func() int { return transactions })
	must.Do(t, store.Close())
}

func TestWhyAddsUp(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	storetest.WhyAddsUp(t, store, &clock)
	must.Do(t, store.Close())
}

func TestWhyOfSkewedClocks(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	storetest.WhyOfSkewedClocks(t, store, &clock)
	must.Do(t, store.Close())
}

// A look with shares that are new to the ledger moves what was charged before, once; the first
// charge with them, and further looks, find it done. A look that has no time for all of that
// sums the rest.
func TestLookWithNewShares(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	const entries = 3000
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock.Load))(t)
	limits := []limit.Limit{{Name: "day", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}}
	charge := func(name string, n int) {
		t.Helper()
		batch := driver.Batch{Budget: name, Now: clock.Add(1000), Limits: limits}
		for ; n > 0; n-- {
			job := []string{"nightly", "feeds", ""}[n%3]
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint(clock.Load(), "-", n), Operation: "op", Units: 1, Labels: driver.Labels{Job: job}})
		}
		must.Get(store.Decide(t.Context(), batch))(t)
	}
	fill := func(name string) {
		limits[0].Shares = nil
		for range entries / 120 {
			charge(name, 120)
		}
		limits[0].Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 10}, {Name: "none", Jobs: []string{"none"}, Guarantee: 10}}
	}
	transactions := 0
	sqlitestore.SetPaused(store, func() { transactions++ })
	pauses := func(do func()) int {
		transactions = 0
		do()
		return transactions
	}
	has := func(name string, view driver.View) {
		t.Helper()
		check.Equal(t, view.Limits[0].Used, entries, "used of", name)
		check.EqualSlices(t, view.Limits[0].Shares, []int64{entries / 3, 0}, "used by the shares of", name)
	}
	look := func(name string) {
		t.Helper()
		has(name, must.Get(store.Look(t.Context(), driver.Look{Budget: name, Now: clock.Load(), Limits: limits}))(t))
	}
	fill("up/key1")
	sqlitestore.SetSteps(store, 50, 50)
	check.Equal(t, pauses(func() { look("up/key1") }) >= entries/50, true, "pauses of the first look:", transactions)
	check.Equal(t, pauses(func() { look("up/key1") }), 0, "pauses of the second look")
	check.Equal(t, pauses(func() { charge("up/key1", 0) }), 0, "pauses of the first charge")

	sqlitestore.SetSteps(store, 2000, 500)
	fill("up/key2")
	sqlitestore.SetSteps(store, 50, 50)
	transactions = 0
	stopping := 10
	sqlitestore.SetPausedIn(store, func(ctx context.Context) {
		if transactions++; transactions == stopping {
			<-ctx.Done() // half of the look's time is over
		}
	})
	asked := driver.Look{Budget: "up/key2", Now: clock.Load(), Limits: limits}
	var view driver.View
	var tries int
	err := driver.ErrUnavailable
	for timeout := 4 * time.Second; errors.Is(err, driver.ErrUnavailable) && timeout < patience; timeout *= 2 { // the other half may be short on a busy machine
		sqlitestore.SetTimeout(store, timeout)
		stopping = transactions + 10
		tries++
		view, err = store.Look(t.Context(), asked)
	}
	must.Do(t, err)
	has("up/key2", view)
	stopped := transactions
	check.Equal(t, stopped <= 10*tries, true, "pauses of a look without time:", stopped)
	sqlitestore.SetTimeout(store, patience)
	sqlitestore.SetPaused(store, func() { transactions++ })
	check.Equal(t, pauses(func() { look("up/key2") }) >= entries/50-stopped, true, "pauses of the look after it:", transactions)
	must.Do(t, store.Close())
}
