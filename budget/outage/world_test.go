package outage_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// flaky is a store that can be away, and counts how often it is asked.
type flaky struct {
	driver.Store
	replacing sync.RWMutex // of Store: a probe may be under way beside the test

	away  atomic.Bool // it does not answer, until the context ends
	gone  atomic.Bool // it is refused at once
	lost  atomic.Bool // it does what it is asked and its answer is lost
	halts atomic.Bool // it goes away when it is to record what happened
	asked atomic.Int64
}

// inner is the store that answers.
func (f *flaky) inner() driver.Store {
	f.replacing.RLock()
	defer f.replacing.RUnlock()
	return f.Store
}

// replace has another store answer from now on.
func (f *flaky) replace(s driver.Store) {
	f.replacing.Lock()
	defer f.replacing.Unlock()
	f.Store = s
}

func (f *flaky) ask(ctx context.Context) error {
	f.asked.Add(1)
	switch {
	case f.gone.Load():
		return fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	case f.away.Load():
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *flaky) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if err := f.ask(ctx); err != nil {
		return driver.Decisions{}, err
	}
	if f.halts.Load() && b.Items[0].Recorded {
		return driver.Decisions{}, fmt.Errorf("connection reset: %w", driver.ErrUnavailable)
	}
	d, err := f.inner().Decide(ctx, b)
	if f.lost.Load() {
		return driver.Decisions{}, fmt.Errorf("connection reset: %w", driver.ErrUnavailable)
	}
	return d, err
}

func (f *flaky) Finish(ctx context.Context, x driver.Finishes) ([]driver.Finished, error) {
	if err := f.ask(ctx); err != nil {
		return nil, err
	}
	return f.inner().Finish(ctx, x)
}

func (f *flaky) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	if err := f.ask(ctx); err != nil {
		return driver.View{}, err
	}
	return f.inner().Look(ctx, l)
}

func (f *flaky) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	if err := f.ask(ctx); err != nil {
		return nil, err
	}
	return f.inner().Change(ctx, change)
}

func (f *flaky) Close() error { return nil } // the test's hosts share it

// world is a store in memory, whose clock the wall clock is, and hosts on it.
type world struct {
	t     *testing.T
	store *flaky
	spec  budget.Spec // with the store's timeout
	log   syncBuffer
	// clocks are the hosts'; nil: this machine's.
	clocks *sqlitestore.Clocks
}

const (
	timeout  = 5 * time.Minute // of a store that may share a busy machine
	interval = 40 * time.Millisecond
)

func newWorld(t *testing.T) *world {
	memory := memstore.New(func() int64 { return time.Now().UnixMicro() })
	return &world{t: t, store: &flaky{Store: memory}, spec: budget.Spec{
		Name: "up/key1", Timeout: timeout, OnStoreError: driver.Open,
		Costs: map[string]budget.Cost{"list": {Units: 1}, "search": {Units: 100}, "safe": {Units: 1, OnStoreError: driver.Closed}},
		Limits: []limit.Limit{
			{Name: "day", Quota: 1000, Headroom: 50, Limit: 950, OutagePart: 40, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
		},
	}}
}

// newWorldInFakeTime is one in a bubble, whose clocks are the bubble's. There a store that is away
// may be waited for.
func newWorldInFakeTime(t *testing.T) *world {
	w := newWorld(t)
	w.spec.Timeout = time.Second
	now := func() int64 { return time.Now().UnixMicro() }
	w.clocks = &sqlitestore.Clocks{Wall: now, Boot: func() (string, int64, error) { return "boot", now(), nil }}
	return w
}

// host is a budget on a host with this directory.
func (w *world) host(dir string) *budget.Budget {
	w.t.Helper()
	store := outage.New(w.store, outage.Options{
		Dir: dir, Allowance: 20, Hosts: 2, Timeout: w.spec.Timeout, Interval: interval, Clocks: w.clocks, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	b := must.Get(budget.New(store, w.spec, budget.WithClosers(store)))(w.t)
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (w *world) used() int64 {
	w.t.Helper()
	view := must.Get(w.store.inner().Look(context.Background(), driver.Look{Budget: w.spec.Name, Now: time.Now().UnixMicro(), Limits: w.spec.Limits}))(w.t)
	return view.Limits[0].Used
}

func (w *world) charge(b *budget.Budget, operation, id string) (budget.Receipt, error) {
	return b.Charge(context.Background(), budget.Call{Operation: operation, ID: id})
}

// charged charges what must be granted by source.
func (w *world) charged(b *budget.Budget, id, source string) budget.Receipt {
	w.t.Helper()
	r, err := w.charge(b, "list", id)
	must.Do(w.t, err)
	must.Equal(w.t, r.Source, source, "charge", id)
	return r
}

// back charges until the store decides again.
func (w *world) back(b *budget.Budget) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if r, err := w.charge(b, "safe", ""); err == nil && r.Source == budget.SourceStore {
			return
		}
	}
	w.t.Fatal("the store is back and is not asked")
}
