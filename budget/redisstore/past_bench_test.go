package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkPast reads the history of 30 days beside a million charges, of ten million in full.
func BenchmarkPast(b *testing.B) {
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(redisstore.OpenWithClock(redistest.Start(b).URL(0), redisstore.Options{Timeout: time.Minute}, clock.Load))(b)
	storetest.BenchPast(b, store, &clock, effort.Of(1_000_000, 10_000_000))
}
