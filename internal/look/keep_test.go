package look

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
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

// A reader that keeps forecasts shows what is left as it is, and what will be as it was a while
// ago.
func TestKeptForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(oneJob), 0o600))
		cfg := must.Get(config.Parse(path))(t)
		store := memstore.New(func() int64 { return time.Now().UnixMicro() })
		r := &Reader{Config: cfg, Jobs: jobs.Load(cfg), Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Keeps: 30 * time.Second}
		r.Open = func(name string) (*budget.Budget, error) { return open.BudgetOn(store, cfg, cfg.Store.URL, name) }
		must.Do(t, cfg.Err())
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
