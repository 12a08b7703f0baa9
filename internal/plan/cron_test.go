package plan_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// Cron starts the run of each region whatever is left: it is cut where a daemon would not start it,
// and the others begin all the same. What is held is held for each run.
func TestPlanOfCron(t *testing.T) {
	start := time.Date(2026, 11, 20, 2, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		more    string
		outcome plan.Outcome
		units   int64
	}{
		"by cron":   {"started_by = \"cron\"", plan.Cut, 100},
		"held":      {"started_by = \"cron\"\nhold = true\ntimeout = \"1h\"", plan.Cut, 60},
		"by daemon": {"command = [\"true\"]", plan.Cut, 60},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "costs.toml")
			must.Do(t, os.WriteFile(path, []byte(`
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[job.nightly]
budget   = "shop/main"
schedule = "0 3 * * *"
timezone = "UTC"
regions  = ["US", "GB"]
needs    = { get = 60 }
`+c.more), 0o600))
			cfg := must.Get(config.Parse(path))(t)
			list := jobs.Load(cfg)
			must.Do(t, cfg.Err())
			store := memstore.New(func() int64 { return start.UnixMicro() })
			b := must.Get(budget.New(store, must.Get(cfg.Spec("shop/main"))(t), budget.WithNow(func() time.Time { return start })))(t)
			question := must.Get(plan.Read(t.Context(), store, []*budget.Budget{b}, list, start, plan.Reading{}))(t)
			question.Until = start.Add(12 * time.Hour)
			passes := must.Get(question.Plan(t.Context()))(t).Passes
			must.Equal(t, len(passes), 1, "passes")
			check.Equal(t, passes[0].Outcome, c.outcome)
			check.Equal(t, passes[0].Units, c.units, "units")
			check.Equal(t, passes[0].Limit, "daily")
		})
	}
}
