package plan_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
)

// A plan that nobody asked for by itself ends earlier where jobs tick each second.
func TestAheadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(`[upstream.up.costs]
op = 1
[upstream.up.limit.l]
limit = 10
window = "1m"
[upstream.up.credential.key]
[job.a]
budget = "up/key"
schedule = "@every 1s"
regions = ["A", "B", "C"]
needs = { op = 1 }
command = ["true"]
`), 0o600))
	cfg, list, err := load(path)
	must.Do(t, err)
	store := memstore.New(nil)
	b := must.Get(budget.New(store, must.Get(cfg.Spec("up/key"))(t)))(t)
	now := time.Now()
	_, lived, err := plan.Ahead(t.Context(), store, []*budget.Budget{b}, list, now, now.Add(plan.DefaultSpan))
	must.Do(t, err)
	check.Equal(t, lived.Until.Sub(now), plan.DefaultSpan/32, "the span")
	check.Equal(t, len(lived.Passes), int(plan.DefaultSpan/32/time.Second), "passes")
}
