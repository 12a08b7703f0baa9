package sqlitestore_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestGuarantees(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(t)
	storetest.Guarantees(t, store, &clock)
	must.Do(t, store.Close())
}

func TestShareWalkBounded(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(t)
	sqlitestore.SetSteps(store, 50, 50)
	transactions := 0
	sqlitestore.SetPaused(store, func() { transactions++ })
	storetest.ShareWalkBounded(t, store, &clock, func() int { return transactions })
	must.Do(t, store.Close())
}

func TestShareWalkAmongCharges(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(t)
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
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(t)
	storetest.WhyAddsUp(t, store, &clock)
	must.Do(t, store.Close())
}

func TestWhyOfSkewedClocks(t *testing.T) {
	var clock atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(t)
	storetest.WhyOfSkewedClocks(t, store, &clock)
	must.Do(t, store.Close())
}
