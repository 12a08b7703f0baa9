package memstore_test

import (
	"testing"

	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestConformance(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	storetest.Run(t, func(t testing.TB, clock func() int64) storetest.Store {
		store := memstore.New(clock)
		t.Cleanup(func() { _ = store.Close() })
		return store
	})
}

// The model beside itself shows that the walk comes by every kind of answer.
func TestWalk(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, func(_ testing.TB, clock func() int64) storetest.Store { return memstore.New(clock) }, 100_000)
}

func TestSoak(t *testing.T) {
	t.Parallel()
	storetest.Soak(t, func(_ testing.TB, clock func() int64) storetest.Store { return memstore.New(clock) }, 60)
}
