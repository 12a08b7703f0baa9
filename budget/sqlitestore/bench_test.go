package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkCharge charges one unit at a time, each acknowledged only when it is
// on the disk, from more and more goroutines of one process.
func BenchmarkCharge(b *testing.B) {
	for _, goroutines := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { benchCharge(b, goroutines, 1) })
	}
}

// BenchmarkUnits charges 1 and 100 units: one entry either way.
func BenchmarkUnits(b *testing.B) {
	for _, units := range []int64{1, 100} {
		b.Run(fmt.Sprintf("units=%d", units), func(b *testing.B) { benchCharge(b, 1, units) })
	}
}

func benchCharge(b *testing.B, goroutines int, units int64) {
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	spec := budget.Spec{
		Name: "up/bench", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: units}},
		Limits: []limit.Limit{
			{Name: "daily", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
			{Name: "burst", Limit: limit.MaxUnits, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Second)},
		},
	}
	bud := must.Get(budget.New(store, spec, budget.WithClosers(store)))(b)
	defer func() { _ = bud.Close() }()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error, goroutines)
	b.ResetTimer()
	for range goroutines {
		go func() {
			for left.Add(-1) >= 0 {
				if _, err := bud.Charge(context.Background(), budget.Call{Operation: "op"}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range goroutines {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "charges/s")
}

// BenchmarkJobs reads the documents of a thousand jobs, as a daemon does to look
// what there is to do.
func BenchmarkJobs(b *testing.B) {
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	defer func() { _ = store.Close() }()
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("a-job-of-a-certain-length-", i)
		must.Get(store.SwapJob(b.Context(), driver.JobSwap{Job: names[i], Text: make([]byte, 1000)}))(b)
	}
	for b.Loop() {
		if found, err := store.Jobs(b.Context(), names); err != nil || len(found[999].Text) != 1000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiters has up to 5,000 goroutines wait for one budget.
func BenchmarkWaiters(b *testing.B) {
	storetest.Waiters(b, func(b *testing.B) driver.Store {
		store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "waiters.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		b.Cleanup(func() { check.NoError(b, store.Close()) })
		return store
	})
}
