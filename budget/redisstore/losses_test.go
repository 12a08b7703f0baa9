package redisstore_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// What a host knew to be used is never granted anew, however often the server is
// flushed, loses a key or comes back with older data.
func TestLosses(t *testing.T) { testLosses(t, 1) }

func TestLossesOfThreeHosts(t *testing.T) { testLosses(t, 3) }

// What was charged on both sides of a split is added up after it.
func TestSplits(t *testing.T) {
	t.Parallel()
	storetest.Splits(t, lossyData(t))
}

// What a process of a host charged to the side of a split that is dropped is missed,
// whatever the host's other process was told of the other side.
func TestHistories(t *testing.T) {
	t.Parallel()
	storetest.Histories(t, lossyData)
}

func TestNewestOnce(t *testing.T) {
	t.Parallel()
	storetest.NewestOnce(t, lossyData(t))
}

func testLosses(t *testing.T, hosts int) {
	t.Parallel()
	storetest.Losses(t, lossyData(t), hosts)
}

func lossyData(t *testing.T) storetest.Lossy {
	t.Helper()
	server := redistest.Start(t)
	admin := server.Client()
	flush := func() { must.Do(t, admin.FlushAll(t.Context()).Err()) }
	drop := func(patterns ...string) func() {
		return func() {
			for _, pattern := range patterns {
				keys := must.Get(admin.Keys(t.Context(), "*:"+pattern).Result())(t)
				if len(keys) > 0 {
					must.Do(t, admin.Del(t.Context(), keys...).Err())
				}
			}
		}
	}
	return storetest.Lossy{
		Open: func(clock func() int64) driver.Store {
			s := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, clock))(t)
			return s
		},
		Lose: map[string]func(){"flushed": flush, "m lost": drop("m"), "e lost": drop("e"), "z lost": drop("z:*"),
			"all but z lost": drop("m", "e", "y:*", "r:*"), "little of z is left": drop("m", "e", "z:1", "z:3", "z:4", "z:5", "z:6")},
		Keep: func() func() {
			keys := must.Get(admin.Keys(t.Context(), "*").Result())(t)
			data, left := map[string]string{}, map[string]time.Duration{}
			for _, key := range keys {
				data[key] = must.Get(admin.Dump(t.Context(), key).Result())(t)
				left[key] = must.Get(admin.PTTL(t.Context(), key).Result())(t)
			}
			return func() {
				flush()
				for key, value := range data {
					must.Do(t, admin.Restore(t.Context(), key, max(0, left[key]), value).Err())
				}
			}
		},
	}
}
