package budget_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
)

// BenchmarkLease is a take of a unit from 1 and from 16 goroutines. A take must not
// allocate: the budget is 0, and the benchmark fails above it.
func BenchmarkLease(b *testing.B) {
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			on, err := budget.New(memstore.New(clock), oneLimit(limit.MaxUnits, limit.RollingWindow(time.Hour)))
			if err != nil {
				b.Fatal(err)
			}
			l, err := on.Lease(b.Context(), videos, 100_000_000, time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			if n := testing.AllocsPerRun(1000, func() { err = l.Take(b.Context(), 1) }); n > 0 || err != nil {
				b.Fatalf("a take allocates %g times, %v", n, err)
			}
			b.ReportAllocs()
			var all sync.WaitGroup
			for i := range goroutines {
				all.Go(func() {
					for range (b.N + i) / goroutines {
						if err := l.Take(b.Context(), 1); err != nil {
							b.Errorf("take: %v", err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtakes/s")
			b.StopTimer()
			if err := l.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
