package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/redisstore"
)

// benchBudget is a budget with n limits, that no benchmark exhausts.
func benchBudget(b *testing.B, url string, n int) (*budget.Budget, *redisstore.Store) {
	spec := budget.Spec{Name: name, Costs: map[string]budget.Cost{"op": {Units: 1}, "dear": {Units: 100}}, Timeout: time.Minute}
	for i := range n {
		spec.Limits = append(spec.Limits, budget.Limit{
			Name: fmt.Sprint("l", i), Limit: budget.MaxUnits, Counts: budget.CountUnits, Window: budget.RollingWindow(time.Duration(i+1) * time.Hour),
		})
	}
	store := openStore(b, url, redisstore.Options{Timeout: patient})
	opened, err := budget.New(store, spec)
	if err != nil {
		b.Fatal(err)
	}
	return opened, store
}

// rate runs do from goroutines for about the given time and tells how many a
// second were done.
func rate(b *testing.B, goroutines int, span time.Duration, do func(context.Context) error) float64 {
	ctx, cancel := context.WithTimeout(b.Context(), span)
	defer cancel()
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(b.Context()); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}

// BenchmarkCharge compares single charges with an empty script on the same
// connections, turn by turn in one run, so that the ratio holds when the
// machine's speed does not.
func BenchmarkCharge(b *testing.B) {
	server := startServer(b)
	empty := redis.NewScript("return 1")
	labels := budget.Labels{Job: "trending", Region: "US", Run: "20260610T120000Z"}
	for _, limits := range []int{1, 3} {
		for _, goroutines := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("limits=%d/goroutines=%d", limits, goroutines), func(b *testing.B) {
				opened, store := benchBudget(b, server.url(limits), limits)
				var charges, scripts float64
				rounds := 0
				for b.Loop() {
					rounds++
					scripts += rate(b, goroutines, 100*time.Millisecond, func(ctx context.Context) error { return empty.Run(ctx, store.Client(), nil).Err() })
					charges += rate(b, goroutines, 100*time.Millisecond, func(ctx context.Context) error {
						_, err := opened.Charge(ctx, budget.Call{Operation: "op", Labels: labels})
						return err
					})
				}
				b.ReportMetric(charges/float64(rounds), "charges/s")
				b.ReportMetric(scripts/float64(rounds), "scripts/s")
				b.ReportMetric(charges/scripts, "ratio")
			})
		}
	}
}

// BenchmarkUnits compares a charge of 100 units with a charge of one.
func BenchmarkUnits(b *testing.B) {
	server := startServer(b)
	one, _ := benchBudget(b, server.url(0), 1)
	hundred, _ := benchBudget(b, server.url(1), 1)
	var cheap, dear float64
	rounds := 0
	for b.Loop() {
		rounds++
		for _, c := range []struct {
			budget    *budget.Budget
			operation string
			sum       *float64
		}{{one, "op", &cheap}, {hundred, "dear", &dear}} {
			*c.sum += rate(b, 16, 100*time.Millisecond, func(ctx context.Context) error {
				_, err := c.budget.Charge(ctx, budget.Call{Operation: c.operation})
				return err
			})
		}
	}
	b.ReportMetric(cheap/float64(rounds), "1-unit/s")
	b.ReportMetric(dear/float64(rounds), "100-unit/s")
	b.ReportMetric(dear/cheap, "ratio")
}
