package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Rate calls do from several goroutines for about span and returns the calls per second.
func Rate(b *testing.B, goroutines int, span time.Duration, do func(context.Context) error) float64 {
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

// Compare calls with and without in turns from several goroutines, and reports both rates per
// second and their ratio: the medians of the rounds.
func Compare(b *testing.B, goroutines int, with, without func(context.Context) error) {
	var rates [2][]float64
	var ratios []float64
	for b.Loop() {
		var round [2]float64
		for i, do := range []func(context.Context) error{with, without} {
			round[i] = Rate(b, goroutines, 100*time.Millisecond, do)
			rates[i] = append(rates[i], round[i])
		}
		ratios = append(ratios, round[0]/round[1])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates[0]), "with/s")
	b.ReportMetric(median(rates[1]), "without/s")
	b.ReportMetric(median(ratios), "of-without")
}

// Charging charges one unit at a time for five jobs in turn.
func Charging(opened *budget.Budget) func(context.Context) error {
	var n atomic.Int64
	return func(ctx context.Context) error {
		job := benchJobs[n.Add(1)%int64(len(benchJobs))]
		_, err := opened.Charge(ctx, budget.Call{Operation: "op", Labels: driver.Labels{Job: job, Region: "US"}})
		return err
	}
}

var benchJobs = []string{"nightly", "feeds", "charts", "comments", "backfill"}

// BenchSpec is a budget that no benchmark exhausts, with a share for each of the first
// so many jobs of Charging.
func BenchSpec(shares int) budget.Spec {
	daily := limit.Limit{Name: "daily", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
	for _, job := range benchJobs[:shares] {
		daily.Shares = append(daily.Shares, limit.Share{Name: job, Jobs: []string{job}, Guarantee: 1e9})
	}
	return budget.Spec{Name: "up/bench", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}}, Limits: []limit.Limit{daily}}
}
