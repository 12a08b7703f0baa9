package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

// benchBudget is a budget with n limits, that no benchmark exhausts.
func benchBudget(b *testing.B, url string, n int) (*budget.Budget, *redisstore.Store) {
	spec := budget.Spec{Name: name, Costs: map[string]budget.Cost{"op": {Units: 1}, "dear": {Units: 100}}, Timeout: time.Minute}
	for i := range n {
		spec.Limits = append(spec.Limits, limit.Limit{
			Name: fmt.Sprint("l", i), Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Duration(i+1) * time.Hour),
		})
	}
	store := openStore(b, url, redisstore.Options{})
	opened := must.Get(budget.New(store, spec))(b)
	return opened, store
}

// BenchmarkCharge compares single charges with an empty script on the same
// connections, turn by turn in one run, so that the ratio holds when the
// machine's speed does not.
func BenchmarkCharge(b *testing.B) {
	server := redistest.Start(b)
	empty := redis.NewScript("return 1")
	labels := driver.Labels{Job: "trending", Region: "US", Run: "20260610T120000Z"}
	for _, limits := range []int{1, 3} {
		for _, goroutines := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("limits=%d/goroutines=%d", limits, goroutines), func(b *testing.B) {
				opened, store := benchBudget(b, server.URL(limits), limits)
				var charges, scripts float64
				rounds := 0
				for b.Loop() {
					rounds++
					scripts += storetest.Rate(b, goroutines, 100*time.Millisecond, func(ctx context.Context) error { return empty.Run(ctx, store.Client(), nil).Err() })
					charges += storetest.Rate(b, goroutines, 100*time.Millisecond, func(ctx context.Context) error {
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
	server := redistest.Start(b)
	one, _ := benchBudget(b, server.URL(0), 1)
	hundred, _ := benchBudget(b, server.URL(1), 1)
	var cheap, dear float64
	rounds := 0
	for b.Loop() {
		rounds++
		for _, c := range []struct {
			budget    *budget.Budget
			operation string
			sum       *float64
		}{{one, "op", &cheap}, {hundred, "dear", &dear}} {
			*c.sum += storetest.Rate(b, 16, 100*time.Millisecond, func(ctx context.Context) error {
				_, err := c.budget.Charge(ctx, budget.Call{Operation: c.operation})
				return err
			})
		}
	}
	b.ReportMetric(cheap/float64(rounds), "1-unit/s")
	b.ReportMetric(dear/float64(rounds), "100-unit/s")
	b.ReportMetric(dear/cheap, "ratio")
}

// fillLedger charges n units of one each, in batches, on the first of the
// operations but for every 10,000th.
func fillLedger(b *testing.B, store *redisstore.Store, spec budget.Spec, n int) {
	for i := 0; i < n; {
		batch := driver.Batch{Budget: spec.Name, Now: time.Now().UnixMicro(), Limits: spec.Limits}
		for ; i < n && len(batch.Items) < driver.MaxBatch; i++ {
			operation := "op"
			if i%10_000 == 0 {
				operation = "dear"
			}
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("fill", i), Operation: operation, Units: 1})
		}
		must.Get(store.Decide(b.Context(), batch))(b)
	}
}

// slowest is the longest script since the server was asked last, in ms.
func slowest(b *testing.B, client redis.UniversalClient) float64 {
	logs, err := client.SlowLogGet(b.Context(), -1).Result()
	if err == nil {
		err = client.Do(b.Context(), "SLOWLOG", "RESET").Err()
	}
	must.Do(b, err)
	longest := time.Duration(0)
	for _, l := range logs {
		longest = max(longest, l.Duration)
	}
	return float64(longest.Microseconds()) / 1000
}

// BenchmarkMillion charges beside a million charges in the window and beside a
// hundred, turn by turn; a refusal whose limit covers one operation in ten
// thousand, and a look, are timed, and the longest run of a script is told.
func BenchmarkMillion(b *testing.B) {
	server := redistest.Start(b, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "100000")
	budgets, stores, sums := map[int]*budget.Budget{}, map[int]*redisstore.Store{}, map[int]float64{}
	for db, n := range []int{100, 1_000_000} {
		budgets[n], stores[n] = benchBudget(b, server.URL(db), 1)
		fillLedger(b, stores[n], budgets[n].Spec(), n)
	}
	filling := slowest(b, stores[100].Client())
	million := budgets[1_000_000]
	spec := million.Spec()
	spec.Limits = append(spec.Limits, limit.Limit{Name: "rare", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour), Operations: []string{"dear"}})
	rare := must.Get(budget.New(stores[1_000_000], spec))(b)
	var refusal, look time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		for n, bud := range budgets {
			sums[n] += storetest.Rate(b, 16, 100*time.Millisecond, func(ctx context.Context) error {
				_, err := bud.Charge(ctx, budget.Call{Operation: "op"})
				return err
			})
		}
		began := time.Now()
		must.Is(b, check.Err(rare.Charge(b.Context(), budget.Call{Operation: "dear"})), budget.ErrExhausted)
		refusal = max(refusal, time.Since(began))
		began = time.Now()
		must.Get(rare.Status(b.Context()))(b)
		look = max(look, time.Since(began))
	}
	b.ReportMetric(sums[1_000_000]/float64(rounds), "charges/s")
	b.ReportMetric(sums[100]/sums[1_000_000], "times-slower")
	b.ReportMetric(float64(refusal.Microseconds())/1000, "refusal-ms")
	b.ReportMetric(float64(look.Microseconds())/1000, "status-ms")
	b.ReportMetric(max(filling, slowest(b, stores[100].Client())), "longest-script-ms")
}

// BenchmarkExpiry has 100,000 charges expire, and merge, at once: it tells the
// longest run of a script and how long the first decision after it took.
func BenchmarkExpiry(b *testing.B) {
	const n = 100_000
	for kind, window := range map[string]limit.Window{"rolling": limit.RollingWindow(time.Hour), "coarse": limit.CoarseWindow(24*time.Hour, time.Minute)} {
		b.Run(kind, func(b *testing.B) {
			server := redistest.Start(b, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "100000")
			longest, first := 0.0, time.Duration(0)
			for i := 0; b.Loop(); i++ {
				var skew atomic.Int64
				store := must.Get(redisstore.OpenWithClock(server.URL(i%16), redisstore.Options{Timeout: time.Minute, Prefix: fmt.Sprint("p", i)},
					func() int64 { return time.Now().UnixMicro() + skew.Load() }))(b)
				spec := budget.Spec{Name: name, Limits: []limit.Limit{{Name: "l", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: window}}}
				fillLedger(b, store, spec, n)
				skew.Store(2 * time.Hour.Microseconds())
				slowest(b, store.Client())
				began := time.Now()
				batch := driver.Batch{Budget: name, Now: began.UnixMicro() + skew.Load(), Limits: spec.Limits, Items: []driver.Item{{ID: "after", Operation: "op", Units: 1}}}
				must.Get(store.Decide(b.Context(), batch))(b)
				first = max(first, time.Since(began))
				longest = max(longest, slowest(b, store.Client()))
				must.Do(b, store.Close())
			}
			b.ReportMetric(longest, "longest-script-ms")
			b.ReportMetric(float64(first.Microseconds())/1000, "first-decision-ms")
		})
	}
}

// BenchmarkWaiters has up to 5,000 goroutines wait for one budget.
func BenchmarkWaiters(b *testing.B) {
	server := redistest.Start(b)
	storetest.Waiters(b, func(b *testing.B) driver.Store {
		store := openStore(b, server.URL(0), redisstore.Options{})
		must.Get(driver.Apply(b.Context(), store, driver.Reset{Budget: "up/wait"}))(b)
		return store
	})
}
