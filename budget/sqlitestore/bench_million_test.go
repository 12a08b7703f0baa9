package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// benchSpec is a budget that no benchmark exhausts.
func benchSpec() budget.Spec {
	return budget.Spec{
		Name: "up/bench", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}},
		Limits: []limit.Limit{{Name: "daily", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}},
	}
}

// filled is the path of a new file with n charges in the window of benchSpec.
func filled(b *testing.B, n int) string {
	path := filepath.Join(b.TempDir(), fmt.Sprint(n, ".db"))
	store := must.Get(sqlitestore.Open(b.Context(), path, sqlitestore.Options{Timeout: time.Minute}))(b)
	spec := benchSpec()
	for i := 0; i < n; {
		batch := driver.Batch{Budget: spec.Name, Now: time.Now().UnixMicro(), Limits: spec.Limits}
		for ; i < n && len(batch.Items) < driver.MaxBatch; i++ {
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("fill", i), Operation: "op", Units: 1})
		}
		must.Get(store.Decide(b.Context(), batch))(b)
	}
	must.Do(b, store.Close())
	return path
}

// benchBudget opens a file with benchSpec's budget.
func benchBudget(b *testing.B, path string) *budget.Budget {
	store := must.Get(sqlitestore.Open(b.Context(), path, sqlitestore.Options{Timeout: time.Minute}))(b)
	return must.Get(budget.New(store, benchSpec(), budget.WithClosers(store)))(b)
}

// BenchmarkOneShot opens a file, charges once and closes it, as a command does: an
// empty file and one of a million charges, of ten million in full, turn by turn.
func BenchmarkOneShot(b *testing.B) {
	n := effort.Of(1_000_000, 10_000_000)
	files := []string{filled(b, 0), filled(b, n)}
	took := make([][]time.Duration, len(files))
	for b.Loop() {
		for i, path := range files {
			began := time.Now()
			opened := benchBudget(b, path)
			must.Get(opened.Charge(b.Context(), budget.Call{Operation: "op"}))(b)
			must.Do(b, opened.Close())
			took[i] = append(took[i], time.Since(began))
		}
	}
	median := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2].Microseconds()) / 1000
	}
	b.ReportMetric(float64(n), "entries")
	b.ReportMetric(median(0), "empty-ms")
	b.ReportMetric(median(1), "full-ms")
	b.ReportMetric(median(1)/median(0), "times-slower")
}

// largeStore opens a new file for benchmarks of large ledgers. Its longest step is a
// transaction, without the fsync at its end.
func largeStore(b *testing.B) storetest.LargeStore {
	var ahead atomic.Int64
	store := must.Get(sqlitestore.OpenWithClock(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute},
		func() int64 { return time.Now().UnixMicro() + ahead.Load() }))(b)
	b.Cleanup(func() { _ = store.Close() })
	var longest atomic.Int64
	sqlitestore.SetTimed(store, func(took time.Duration) { longest.Store(max(longest.Load(), int64(took))) })
	return storetest.LargeStore{Store: store, Ahead: &ahead, Longest: func() time.Duration { return time.Duration(longest.Swap(0)) }}
}

// BenchmarkMillion measures what is rare beside a million charges.
func BenchmarkMillion(b *testing.B) { storetest.BenchLarge(b, largeStore(b), 1_000_000) }

// BenchmarkExpiry has 100,000 charges leave the window at once.
func BenchmarkExpiry(b *testing.B) { storetest.BenchExpiry(b, largeStore) }
