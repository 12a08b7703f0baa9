package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A tick costs the state two changes, its claim and its record, over all daemons, and
// a minute without one costs a daemon two looks at all jobs, those for what was asked,
// and twice what says that it lives.
func TestWhatTicksCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"0 * * * *\""})
		counted := &changeable{State: w.store}
		w.options.State = counted
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(time.Minute + time.Second)
		before := counted.calls.Load()
		after(50 * time.Minute)
		if n := counted.calls.Load() - before; n > 2*50*(2+30+2*3) {
			t.Errorf("%d calls in 50 minutes", n)
		}
		after(3 * time.Hour)
		found := must.Get(w.store.Job(t.Context(), "trending"))(t)
		check.Equal(t, found.Version, 1+3*2, "changed")
		stopFirst()
		stopSecond()
	})
}

// A state that has lost all that it held has no tick run again by a daemon that was
// there.
func TestAStateThatLostItsDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 * * * *\"\ncatch_up = \"all\""})
		flushed := &changeable{State: w.store}
		w.options.State = flushed
		stop := w.daemon(false)
		after(3*time.Hour + 30*time.Minute)
		flushed.set(memstore.New(func() int64 { return time.Now().UnixMicro() }))
		after(time.Hour)
		stop()
		check.EqualSlices(t, w.history(), []string{"4h0m0s succeeded"}, "history")
		check.EqualSlices(t, upstream.starts(), []string{"US 1h0m0s", "US 2h0m0s", "US 3h0m0s", "US 4h0m0s"}, "starts")
	})
}

// changeable is a state in whose place another may be put, and which counts its calls.
type changeable struct {
	mu sync.Mutex // guards State
	State
	calls atomic.Int64
}

func (c *changeable) set(s State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.State = s
}

func (c *changeable) get() State {
	c.calls.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.State
}

func (c *changeable) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	return c.get().Job(ctx, job)
}

func (c *changeable) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	return c.get().Jobs(ctx, names)
}

func (c *changeable) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	return c.get().SwapJob(ctx, swap)
}

// watched tells which items come to the store.
type watched struct {
	driver.Store
	items []driver.Item
}

func (w *watched) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	w.items = append(w.items, b.Items...)
	return w.Store.Decide(ctx, b)
}

// The look before a run and the charges of a fetch carry what the job says, also where
// the budget was opened with a configuration in which it says something else.
func TestAFetchChargesAsItsJobSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nfloor = 60\non_store_error = \"open\""})
		store := &watched{Store: w.store}
		spec := w.options.Budgets["youtube/key1"].Spec()
		spec.Jobs = map[string]budget.JobSays{"trending": {Floor: 3, OnStoreError: budget.Closed}}
		b := must.Get(budget.New(store, spec))(t)
		w.options.Budgets = map[string]*budget.Budget{"youtube/key1": b}
		must.Equal(t, w.once().Outcome, Succeeded)
		charges := 0
		for _, item := range store.items {
			if item.Floor != 60 || !item.DryRun && item.OnStoreError != budget.Open {
				t.Errorf("%+v, want the job's floor and policy", item)
			}
			if !item.DryRun {
				charges++
			}
		}
		check.Equal(t, charges, 4, "charges, want one a page")
	})
}
