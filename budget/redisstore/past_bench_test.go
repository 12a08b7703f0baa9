package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkShares compares charges that four shares divide with the same charges of an
// undivided limit, turn by turn.
func BenchmarkShares(b *testing.B) {
	compare(b, func(b *testing.B, url string, with bool) func(context.Context) error {
		shares := map[bool]int{true: 4}[with]
		return storetest.Charging(must.Get(budget.New(openStore(b, url, redisstore.Options{}), storetest.BenchSpec(shares)))(b))
	})
}

// BenchmarkHistory compares charges that the history sums with charges of a store that keeps
// none, turn by turn.
func BenchmarkHistory(b *testing.B) {
	compare(b, func(b *testing.B, url string, with bool) func(context.Context) error {
		kept := map[bool]time.Duration{false: -1}[with]
		return storetest.Charging(must.Get(budget.New(openStore(b, url, redisstore.Options{History: kept}), storetest.BenchSpec(0)))(b))
	})
}

func compare(b *testing.B, charging func(b *testing.B, url string, with bool) func(context.Context) error) {
	server := redistest.Start(b)
	for i, goroutines := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			storetest.Compare(b, goroutines, charging(b, server.URL(2*i), true), charging(b, server.URL(2*i+1), false))
		})
	}
}

// BenchmarkPast reads the history of 30 days beside a million charges, of ten million in full.
func BenchmarkPast(b *testing.B) {
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(redisstore.OpenWithClock(redistest.Start(b).URL(0), redisstore.Options{Timeout: time.Minute}, clock.Load))(b)
	storetest.BenchPast(b, store, &clock, effort.Of(1_000_000, 10_000_000))
}
