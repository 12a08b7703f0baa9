package outage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// lease leases 10 units of an operation at a time.
func (w *world) lease(b *budget.Budget, operation string) *budget.Lease {
	w.t.Helper()
	return must.Get(b.Lease(context.Background(), budget.Call{Operation: operation}, 10, time.Hour))(w.t)
}

// spent is what the store has charged for an operation.
func (w *world) spent(operation string) (units int64) {
	w.t.Helper()
	spent := must.Get(w.store.Spent(context.Background(), driver.SpentQuery{Budget: w.spec.Name, Now: time.Now().UnixMicro(), By: driver.ByOperation}))(w.t)
	for _, row := range spent.Rows {
		if row.Name == operation {
			units = row.Units
		}
	}
	return units
}

// While the store is away, a lease with the policy open charges the host's allowance, and no
// more than that. The store records it all once it is back.
func TestLeaseSpendsTheAllowance(t *testing.T) {
	w := newWorld(t)
	b := w.host(t.TempDir())
	l := w.lease(b, "list")
	ctx := context.Background()
	must.Do(t, l.Take(ctx, 3))
	w.store.gone.Store(true)
	taken := int64(3)
	var err error
	for err == nil || !errors.Is(err, budget.ErrUnavailable) && !errors.Is(err, budget.ErrExhausted) {
		if err = l.Take(ctx, 1); err == nil {
			taken++
		}
	}
	if taken != 3+7+20 { // what was charged before, and the host's part
		t.Errorf("%d units were taken while the store was away: %v", taken, err)
	}
	check.Equal(t, l.Receipt().Source, budget.SourceAllowance, "source")
	w.store.gone.Store(false)
	w.back(b)
	redistest.Await(t, "the breaker lets the lease ask", func() bool { return l.Take(ctx, 1) == nil })
	taken++
	check.Equal(t, l.Receipt().Source, budget.SourceStore, "source")
	must.Do(t, l.Close(ctx))
	check.Equal(t, w.spent("list"), taken, "charged")
}

// A lease with the policy closed ends within a second while the store is away. What was
// taken is written down, and settled once the store is back.
func TestLeaseIsSettledAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		b := w.host(t.TempDir())
		l := w.lease(b, "safe")
		ctx := t.Context()
		must.Do(t, l.Take(ctx, 3))
		w.store.gone.Store(true)
		gone := time.Now()
		last := gone
		for l.Take(ctx, 0) == nil {
			last = time.Now()
			time.Sleep(time.Millisecond)
		}
		if since := last.Sub(gone); since > time.Second {
			t.Errorf("the lease handed out until %s after the store had gone", since)
		}
		check.Is(t, l.Take(ctx, 1), budget.ErrUnavailable)
		must.Do(t, l.Close(ctx))
		check.Equal(t, w.used(), 10, "used by what is not settled yet")
		w.store.gone.Store(false)
		time.Sleep(interval) // the breaker lets the next call ask
		w.back(b)
		check.Equal(t, w.spent("safe")-1, 3, "charged, but for the call that found the store back")
	})
}
