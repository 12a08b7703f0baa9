package redisstore_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// largeStore opens a store for benchmarks of large ledgers, with keys of its own.
func largeStore(b *testing.B, server *redistest.Server) storetest.LargeStore {
	var ahead atomic.Int64
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: time.Minute, Prefix: rand.Text()},
		func() int64 { return time.Now().UnixMicro() + ahead.Load() }))(b)
	b.Cleanup(func() { _ = store.Close() })
	client := server.Client()
	return storetest.LargeStore{Store: store, Ahead: &ahead, Longest: func() time.Duration { return slowest(b, client) }}
}

// slowest is the longest script since the server was asked last.
func slowest(b *testing.B, client redis.UniversalClient) (longest time.Duration) {
	logs, err := client.SlowLogGet(b.Context(), -1).Result()
	if err == nil {
		err = client.Do(b.Context(), "SLOWLOG", "RESET").Err()
	}
	must.Do(b, err)
	for _, l := range logs {
		longest = max(longest, l.Duration)
	}
	return longest
}

// slowLog has a server note each command of a millisecond and more.
func slowLog(b *testing.B) *redistest.Server {
	return redistest.Start(b, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "100000")
}

// BenchmarkMillion measures what is rare beside a million charges.
func BenchmarkMillion(b *testing.B) {
	storetest.BenchLarge(b, largeStore(b, slowLog(b)), 1_000_000)
}

// BenchmarkExpiry has 100,000 charges leave the window at once.
func BenchmarkExpiry(b *testing.B) {
	server := slowLog(b)
	storetest.BenchExpiry(b, func(b *testing.B) storetest.LargeStore { return largeStore(b, server) })
}

// BenchmarkWaiters has up to 5,000 goroutines wait for one budget.
func BenchmarkWaiters(b *testing.B) {
	server := redistest.Start(b)
	storetest.Waiters(b, func(b *testing.B) driver.Store {
		store := openStore(b, server.URL(0), redisstore.Options{})
		must.Get(driver.Apply(b.Context(), store, driver.Reset{Budget: "up/wait"}))(b)
		return store
	})
}
