package look

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

const oneJob = `
[store]
url = "sqlite:unused.db"
[upstream.shop.costs]
get = 1
[upstream.shop.limit.day]
quota = 110
headroom = 10
window = "24h"
[upstream.shop.credential.main]
[job.pull]
budget = "shop/main"
schedule = "0 * * * *"
command = ["true"]
needs = { get = 30 }
`

// keeper is a reader of oneJob that keeps forecasts, in a synctest bubble.
func keeper(t *testing.T) *Reader {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(oneJob), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	r := &Reader{Config: cfg, Jobs: jobs.Load(cfg), Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Keeps: 30 * time.Second}
	r.Open = func(name string) (*budget.Budget, error) { return open.BudgetOn(store, cfg, cfg.Store.URL, name) }
	must.Do(t, cfg.Err())
	return r
}

// A reader that keeps forecasts shows what is left now, and a forecast of a while ago.
func TestKeptForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keeper(t)
		least := func(left, least int64, what string) {
			t.Helper()
			seen := must.Get(r.Overview(t.Context(), r.Budgets()))(t)
			check.Equal(t, *seen.Budgets[0].Remaining, left, what, "left")
			check.Equal(t, seen.Ahead.Budget("shop/main").Least.Remaining, least, what, "fewest left by plan")
			state := must.Get(r.State(t.Context(), r.Jobs))(t)
			check.Equal(t, state.Ahead == seen.Ahead, r.Keeps > 0, what, "the same forecast")
		}
		b := must.Get(r.Open("shop/main"))(t)
		charge := func(ctx context.Context, units int64) {
			t.Helper()
			must.Get(b.Charge(ctx, budget.Call{Operation: "get", Units: &units}))(t)
		}
		least(100, 10, "at first")
		charge(t.Context(), 5)
		time.Sleep(29 * time.Second)
		least(95, 10, "while it is kept")
		time.Sleep(time.Second)
		least(95, 5, "when it is old")
		r.Keeps = 0
		charge(t.Context(), 1)
		least(94, 4, "a reader that keeps none")
	})
}

// heldStore is a store whose jobs are read when they may be, and counts how often.
type heldStore struct {
	open.Backend
	may   chan struct{} // closed: at once
	fails error
	reads atomic.Int64
}

func (s *heldStore) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	s.reads.Add(1)
	select {
	case <-s.may:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fails != nil {
		return nil, s.fails
	}
	return s.Backend.Jobs(ctx, names)
}

// Those who ask at once share one forecast. Nobody waits beyond its own context, one who leaves
// takes nothing from the others, and what failed is not kept.
func TestForecastsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keeper(t)
		store := &heldStore{Backend: r.Store, may: make(chan struct{})}
		r.Store = store
		var all sync.WaitGroup
		asks := func(ctx context.Context, want bool, what string) {
			all.Go(func() { check.Equal(t, r.keptForecast(ctx, r.Jobs) != nil, want, what) })
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		asks(ctx, false, "one who makes it and leaves")
		asks(t.Context(), true, "one who waits for it")
		asks(t.Context(), true, "another one")
		hurry, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		check.Equal(t, r.keptForecast(hurry, r.Jobs) == nil, true, "one in a hurry has none")
		check.Equal(t, time.Since(began), time.Second, "and waits no longer")
		check.Equal(t, r.keptForecast(t.Context(), nil) == nil, true, "of other jobs there is no need to wait")
		once := store.reads.Load()
		cancel()
		synctest.Wait()
		close(store.may)
		all.Wait()
		check.Equal(t, store.reads.Load() > once, true, "the next one makes it anew")
		made := store.reads.Load()
		asks(t.Context(), true, "while it is kept")
		check.Equal(t, store.reads.Load(), made)

		time.Sleep(r.Keeps)
		store.fails = errors.New("out of reach")
		asks(t.Context(), false, "when it fails")
		store.fails = nil
		asks(t.Context(), true, "right after a failure")
		all.Wait()
	})
}

// Forecasts of many choices of jobs are bounded, and made all the same.
func TestForecastsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keeper(t)
		for range mostForecasts + 3 {
			one := *r.Jobs[0]
			check.Equal(t, r.keptForecast(t.Context(), []*jobs.Job{&one}) != nil, true)
		}
		check.Equal(t, len(r.forecasts), mostForecasts)
		time.Sleep(r.Keeps)
		check.Equal(t, r.keptForecast(t.Context(), r.Jobs) != nil, true)
		check.Equal(t, len(r.forecasts), 1, "the old ones are gone")
	})
}
