package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// LargeStore is a store for benchmarks of large ledgers. Its clock is the machine's, ahead
// by Ahead µs.
type LargeStore struct {
	driver.Store
	Ahead *atomic.Int64
	// Longest is how long the longest step that blocks others took since it was asked last;
	// nil: not known.
	Longest func() time.Duration
}

// now is the store's clock.
func (s LargeStore) now() int64 { return time.Now().UnixMicro() + s.Ahead.Load() }

// fill charges n units of one each, at even distances over span, but for the last few in
// batches: those of a batch follow each other at once.
func (s LargeStore) fill(b *testing.B, name string, limits []limit.Limit, n int, span time.Duration) {
	start := s.now()
	for i := 0; i < n; {
		at := start + span.Microseconds()*int64(i)/int64(n)
		s.Ahead.Add(max(0, at-s.now()))
		batch := driver.Batch{Budget: name, Now: s.now(), Limits: limits}
		for ; i < n && len(batch.Items) < driver.MaxBatch; i++ {
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("fill", i), Operation: "op", Units: 1, Labels: driver.Labels{Job: benchJobs[i%len(benchJobs)], Region: "US"}})
		}
		must.Get(s.Decide(b.Context(), batch))(b)
	}
}

// decide decides one item and returns how long that took.
func (s LargeStore) decide(b *testing.B, name string, units int64, limits ...limit.Limit) (driver.Decision, time.Duration) {
	began := time.Now()
	batch := driver.Batch{Budget: name, Now: s.now(), Limits: limits, Items: []driver.Item{{ID: fmt.Sprint("after", began.UnixNano()), Operation: "op", Units: units}}}
	decided := must.Get(s.Decide(b.Context(), batch))(b)
	return decided.Items[0], time.Since(began)
}

// rollingLimit is a limit over a trailing window.
func rollingLimit(name string, amount int64, window time.Duration) limit.Limit {
	return limit.Limit{Name: name, Limit: amount, Counts: limit.CountUnits, Window: limit.RollingWindow(window)}
}

// BenchLarge measures what is rare beside n charges of the last hour, each in its own time,
// in ms: a refusal that needs half of the window back, the first decision by a window that
// is longer than those before and by one that holds half of the charges, and a status. It
// also reports how many times as long a charge takes as beside a hundred, from 16
// goroutines, and the longest step of a round and while filling. Figures of rounds are
// medians: a step's time includes what the machine does meanwhile.
func BenchLarge(b *testing.B, store LargeStore, n int) {
	const large, small = "up/large", "up/small"
	daily := rollingLimit("daily", limit.MaxUnits, 2*time.Hour)
	store.fill(b, small, []limit.Limit{daily}, 100, time.Minute)
	store.longest()
	store.fill(b, large, []limit.Limit{daily}, n, time.Hour)
	filling := store.longest()
	budgets := map[string]*budget.Budget{}
	for _, name := range []string{large, small} {
		spec := budget.Spec{Name: name, Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}}, Limits: []limit.Limit{daily}}
		budgets[name] = must.Get(budget.New(store.Store, spec, budget.WithNow(func() time.Time { return time.UnixMicro(store.now()) })))(b)
	}
	var slower []float64
	for range 7 {
		rates := map[string]float64{}
		for name, opened := range budgets {
			rates[name] = Rate(b, 16, 100*time.Millisecond, func(ctx context.Context) error {
				_, err := opened.Charge(ctx, budget.Call{Operation: "op"})
				return err
			})
		}
		slower = append(slower, rates[small]/rates[large])
	}
	took := map[string][]time.Duration{}
	store.longest()
	for round := time.Duration(0); b.Loop(); round++ {
		full := rollingLimit("full", int64(n), 2*time.Hour)
		refused, refusal := store.decide(b, large, int64(n/2), daily, full)
		if wait := time.Duration(refused.RetryAt-store.now()) * time.Microsecond; refused.Result != driver.Refused || wait < time.Hour || wait > 2*time.Hour {
			b.Fatalf("a call that needs half of the window back: %+v, in %s", refused, wait)
		}
		_, longer := store.decide(b, large, 0, daily, rollingLimit("longer", limit.MaxUnits, 3*time.Hour+round*time.Second))
		_, narrower := store.decide(b, large, 0, daily, rollingLimit("narrower", limit.MaxUnits, 30*time.Minute-round*time.Second))
		began := time.Now()
		must.Get(budgets[large].Status(b.Context()))(b)
		looked := time.Since(began)
		for name, one := range map[string]time.Duration{
			"deep-refusal-ms": refusal, "new-window-ms": longer, "narrowed-window-ms": narrower, "status-ms": looked, longestScript: store.longest(),
		} {
			took[name] = append(took[name], one)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n), "charges")
	b.ReportMetric(median(slower), "times-slower")
	if store.Longest == nil {
		delete(took, longestScript)
	} else {
		b.ReportMetric(milliseconds(filling), "longest-while-filling-ms")
	}
	for name, list := range took {
		b.ReportMetric(milliseconds(median(list)), name)
	}
}

// BenchExpiry has 100,000 charges leave the window at once, and reports how long the first
// decision after it takes, and the longest step of it. It opens a store for each round.
func BenchExpiry(b *testing.B, open func(b *testing.B) LargeStore) {
	const n = 100_000
	for kind, window := range map[string]limit.Window{"rolling": limit.RollingWindow(time.Hour), "coarse": limit.CoarseWindow(24*time.Hour, time.Minute)} {
		b.Run(kind, func(b *testing.B) {
			var took []time.Duration
			var longest []time.Duration
			for b.Loop() {
				store := open(b)
				l := limit.Limit{Name: "l", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: window}
				store.fill(b, "up/expiry", []limit.Limit{l}, n, time.Second)
				store.Ahead.Add(25 * time.Hour.Microseconds())
				store.longest()
				_, one := store.decide(b, "up/expiry", 1, l)
				took = append(took, one)
				if store.Longest != nil {
					longest = append(longest, store.longest())
				}
				must.Do(b, store.Close())
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(n, "charges")
			b.ReportMetric(milliseconds(median(took)), "first-decision-ms")
			if longest != nil {
				b.ReportMetric(milliseconds(median(longest)), longestScript)
			}
		})
	}
}

// longestScript is the unit of the longest step.
const longestScript = "longest-script-ms"

// longest is Longest, or 0 if it is not known.
func (s LargeStore) longest() time.Duration {
	if s.Longest == nil {
		return 0
	}
	return s.Longest()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// median sorts the list.
func median[N time.Duration | float64](list []N) N {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
