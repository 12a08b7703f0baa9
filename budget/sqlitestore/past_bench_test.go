package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkShares compares charges that four shares divide with the same charges of an
// undivided limit, turn by turn.
func BenchmarkShares(b *testing.B) {
	compare(b, func(with bool) func(context.Context) error {
		store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		return storetest.Charging(must.Get(budget.New(store, storetest.BenchSpec(map[bool]int{true: 4}[with])))(b))
	})
}

// BenchmarkHistory compares charges that the history sums with charges of a store that keeps
// none, turn by turn.
func BenchmarkHistory(b *testing.B) {
	compare(b, func(with bool) func(context.Context) error {
		options := sqlitestore.Options{Timeout: time.Minute, History: map[bool]time.Duration{false: -1}[with]}
		store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), options))(b)
		return storetest.Charging(must.Get(budget.New(store, storetest.BenchSpec(0)))(b))
	})
}

func compare(b *testing.B, charging func(with bool) func(context.Context) error) {
	for _, goroutines := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			storetest.Compare(b, goroutines, charging(true), charging(false))
		})
	}
}

// BenchmarkPast reads the history of 30 days beside a million charges, of ten million in full.
func BenchmarkPast(b *testing.B) {
	var clock atomic.Int64
	clock.Store(1_800_000_000_000_000)
	store := must.Get(sqlitestore.OpenWithClock(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, clock.Load))(b)
	storetest.BenchPast(b, store, &clock, effort.Of(1_000_000, 10_000_000))
}
