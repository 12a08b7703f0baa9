package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
)

const otherConfig = `[upstream.up]
[upstream.up.costs]
list = 1
search = 100
[upstream.up.limit.day]
quota = 10_000
headroom = "auto"
window = "24h"
[upstream.up.limit.long]
limit = 50_000
window = "72h"
operations = ["search"]
[upstream.up.limit.each]
limit = 20_000
window = "6h"
per = "operation"
[upstream.up.credential."*"]
[job.a]
budget = "up/shop1"
schedule = "0 * * * *"
needs = { list = 3 }
command = ["true"]
`

// A question of other limits sees what the ledger holds that only they count, what is left of the quota by the present
// automatic headroom, and each operation's own limit, of a budget that no configuration names.
func TestReadForOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memstore.New(nil)
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(otherConfig), 0o600))
		cfg, list, err := load(path)
		must.Do(t, err)
		spec := must.Get(cfg.Spec("up/shop1"))(t)
		b := must.Get(budget.New(store, spec))(t)
		charge := func(operation string) {
			must.Get(b.Charge(ctx, budget.Call{Operation: operation, Labels: budget.Labels{Job: "a"}}))(t)
		}
		charge("list")
		time.Sleep(time.Minute)
		charge("search")
		time.Sleep(50 * time.Hour)
		charge("list")
		status := must.Get(b.Status(ctx))(t)

		longer := spec
		longer.Limits = append(slices.Clone(spec.Limits), limit.Limit{Name: "all", Limit: 50_000, Counts: limit.CountUnits, Window: limit.RollingWindow(60 * time.Hour)})
		other := must.Get(budget.New(store, longer))(t)
		q := must.Get(plan.Read(ctx, store, []*budget.Budget{b}, list, time.Now(), plan.Reading{Others: map[string][]limit.Limit{"up/shop1": longer.Limits}}))(t)
		q.Until = q.From.Add(time.Hour)
		asked := must.Get(q.Other(ctx, store, []*budget.Budget{other}, list))(t)
		used := map[string]int64{}
		for _, l := range must.Get(asked.Plan(ctx))(t).Budgets[0].Limits {
			used[l.Name] = l.UsedNow
			if l.Name == "day" {
				check.Equal(t, l.Limit.Limit, status.Limits[0].Limit.Limit, "the limit with its present headroom")
			}
		}
		for name, want := range map[string]int64{"day": 1, "long": 100, "all": 102, "each:list": 1, "each:search": 0} {
			check.Equal(t, used[name], want, "used of", name)
		}
		for i, l := range must.Get(q.Plan(ctx))(t).Budgets[0].Limits {
			check.Equal(t, l.UsedNow, status.Limits[i].Used, "used now of", l.Name)
		}
	})
}
