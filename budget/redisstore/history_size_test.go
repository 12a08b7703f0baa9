package redisstore_test

import (
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// A row of history takes at most 100 bytes of the server's memory.
func TestHistoryBytes(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	server := redistest.Start(t)
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, clock.Load))(t)
	storetest.FillMonth(t, store, &clock, 0)
	must.Get(store.History(t.Context(), driver.HistoryQuery{Budget: storetest.BenchSpec(0).Name, Now: clock.Load()}))(t) // empties the logs
	admin, sum := server.Client(), int64(0)
	keys := must.Get(admin.Keys(t.Context(), "*}:h:*").Result())(t)
	for _, key := range keys {
		sum += must.Get(admin.MemoryUsage(t.Context(), key, 0).Result())(t)
	}
	each := float64(sum) / storetest.MonthRows
	t.Logf("%.1f bytes a row: %d in %d keys", each, sum, len(keys))
	if each <= 8 || each > 100 {
		t.Errorf("%.1f bytes a row, want at most 100", each)
	}
}
