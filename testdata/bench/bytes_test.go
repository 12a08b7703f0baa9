package bench

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// BenchmarkBytes measures what a charge with a job, a region and a run takes: of Redis'
// memory, and of SQLite's file. What a ledger takes before its first charges is not
// counted. Run it with -benchtime 1x: it charges 100,000 times.
func BenchmarkBytes(b *testing.B) {
	const before, charges = 1_000, 100_000
	b.Run("store=redis", func(b *testing.B) {
		server := redistest.Start(b)
		charge := charging(b, openRedis(b, server.URL(0), redisstore.Options{}), 1, "bytes")
		client := peerClient(server.Addr, 0)
		b.Cleanup(func() { _ = client.Close() })
		chargeTimes(b, before, charge)
		empty := memory(b, client)
		chargeTimes(b, charges, charge)
		report(b, float64(memory(b, client)-empty)/charges)
	})
	b.Run("store=sqlite", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "q.db")
		size := map[bool]int64{}
		for _, full := range []bool{false, true} {
			n := map[bool]int{false: before, true: charges}[full]
			store := must.Get(sqlitestore.Open(b.Context(), path, sqlitestore.Options{Timeout: time.Minute}))(b)
			chargeTimes(b, n, charging(b, keepOpen{store}, 1, "bytes"))
			must.Do(b, store.Close()) // moves the journal into the file
			size[full] = must.Get(os.Stat(path))(b).Size()
		}
		report(b, float64(size[true]-size[false])/charges)
	})
}

func report(b *testing.B, bytes float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bytes, "B/charge")
}

// keepOpen is a store that the benchmark itself closes.
type keepOpen struct{ driver.Store }

func (keepOpen) Close() error { return nil }

// chargeTimes charges n times from goroutines whose charges are decided together.
func chargeTimes(b *testing.B, n int, charge func(context.Context) error) {
	const goroutines = 50
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range n / goroutines {
				check.NoError(b, charge(b.Context()))
			}
		})
	}
	all.Wait()
}

// memory is what all keys take, in bytes.
func memory(b *testing.B, client *redis.Client) (sum int64) {
	for _, key := range must.Get(client.Keys(b.Context(), "*").Result())(b) {
		sum += must.Get(client.MemoryUsage(b.Context(), key, 0).Result())(b)
	}
	return sum
}
