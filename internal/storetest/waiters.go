package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// waitersQuota is how many calls a second the waiters of a benchmark share: the ideal
// time for 5,000 waiters is 9 s.
const waitersQuota = 555

// Waiters has many goroutines wait for one budget at once. It reports the time until the
// last is served next to the ideal time, and per thousand waiters the CPU time of this
// process and the items that the store decided. With linear work these do not grow with
// the number of waiters.
func Waiters(b *testing.B, open func(b *testing.B) driver.Store) {
	for _, n := range []int{1250, 2500, 5000} {
		b.Run(fmt.Sprintf("waiters=%d", n), func(b *testing.B) {
			var took, ideal, cpu time.Duration
			decided := int64(0)
			for b.Loop() {
				store := &decisionCounter{Store: open(b)}
				metered := must.Get(budget.New(store, budget.Spec{
					Name: "up/wait", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}},
					Limits: []limit.Limit{{Name: "second", Limit: waitersQuota, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)}},
				}))(b)
				began, used := time.Now(), cpuTime(b)
				waitAll(b, metered, n)
				took += time.Since(began)
				ideal += time.Duration((n-1)/waitersQuota) * time.Second
				cpu += cpuTime(b) - used
				decided += store.items.Load()
			}
			thousands := float64(n) * float64(b.N) / 1000
			b.ReportMetric(took.Seconds()/ideal.Seconds(), "time/ideal")
			b.ReportMetric(cpu.Seconds()/thousands, "cpu-s/1000")
			b.ReportMetric(float64(decided)/thousands, "decisions/1000")
		})
	}
}

func waitAll(b *testing.B, metered *budget.Budget, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { check.NoError(b, check.Err(metered.Wait(b.Context(), budget.Call{Operation: "op"}))) })
	}
	all.Wait()
}

// decisionCounter counts the items that a store decides.
type decisionCounter struct {
	driver.Store
	items atomic.Int64
}

func (s *decisionCounter) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	s.items.Add(int64(len(batch.Items)))
	return s.Store.Decide(ctx, batch)
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
