package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// The allocation budgets: how many times a charge may allocate at most. A change that needs
// more says why here.
const (
	chargeAllocs    = 9  // Budget.Charge by itself, on a store that does nothing
	togetherAllocs  = 2  // the same, of a charge that is decided with others
	decideAllocs    = 61 // redisstore.Store.Decide of one item, with the client library and the new id
	decideAllAllocs = 5  // the same, of an item among driver.MaxBatch
)

// BenchmarkAllocs fails if a charge allocates more than its budget says.
func BenchmarkAllocs(b *testing.B) {
	b.Run("charge", func(b *testing.B) {
		charge := charging(b, nothing{}, 1, "allocs")
		within(b, chargeAllocs, 1, func() { must.Do(b, charge(b.Context())) })
	})
	b.Run("charge/goroutines=64", func(b *testing.B) {
		const goroutines = 64
		charge := charging(b, nothing{yields: true}, 1, "allocs")
		within(b, togetherAllocs, goroutines*100, func() {
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for range 100 {
						check.NoError(b, charge(b.Context()))
					}
				})
			}
			all.Wait()
		})
	})
	server := redistest.Start(b)
	for _, n := range []int{1, driver.MaxBatch} {
		b.Run(fmt.Sprintf("decide/items=%d", n), func(b *testing.B) {
			d := newDecider(b, server.URL(0), shape{limits: rollings(1)}, fmt.Sprint("allocs", n))
			within(b, map[int]float64{1: decideAllocs, driver.MaxBatch: decideAllAllocs}[n], n, func() { must.Do(b, d.decide(b.Context(), n)) })
		})
	}
}

// within reports how many times a charge allocates, of which do makes n a call, and fails
// above the budget.
func within(b *testing.B, budget float64, n int, do func()) {
	do() // what is made once is not counted
	allocs := testing.AllocsPerRun(20, do) / float64(n)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(allocs, "allocs/charge")
	b.ReportMetric(budget, "allocs/budget")
	if allocs > budget {
		b.Errorf("a charge allocates %.1f times: its budget is %.0f", allocs, budget)
	}
}

// nothing is a store that grants everything and does nothing.
type nothing struct {
	driver.Store
	yields bool // charges of other goroutines queue up meanwhile
}

func (s nothing) Decide(_ context.Context, batch driver.Batch) (driver.Decisions, error) {
	if s.yields {
		runtime.Gosched()
	}
	decided := driver.Decisions{Now: batch.Now, Seen: batch.Now, Items: make([]driver.Decision, len(batch.Items)), Used: make([]int64, len(batch.Limits))}
	for i, item := range batch.Items {
		decided.Items[i] = driver.Decision{Result: driver.Granted, Units: item.Units, At: batch.Now}
	}
	return decided, nil
}

func (nothing) Close() error { return nil }
