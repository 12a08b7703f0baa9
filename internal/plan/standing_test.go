package plan_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// What a pass under way holds is kept from others until it has drawn it. The hold of a pass that is gone ends with its lease.
func TestPlanWithHolds(t *testing.T) {
	a := advised{limit: "window = \"24h\"\nlimit = 100", jobs: []string{`held: schedule = "0 12 * * *"; needs = { op = 60 }; hold = true`, `other: schedule = "5,15 1 * * *"; needs = { op = 50 }`}}
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(a.text()), 0o600))
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memstore.New(nil)
		cfg, list, err := load(path)
		must.Do(t, err)
		spec := must.Get(cfg.Spec("up/key"))(t)
		b := must.Get(budget.New(store, spec))(t)
		time.Sleep(time.Hour) // it is 01:00
		now := time.Now()
		hold := driver.Item{Needs: []driver.Need{{Operation: "op", Units: 60, Calls: 60}}, Span: 60e6, Lease: 600e6, Fence: driver.FenceName("held", 1), Labels: driver.Labels{Job: "held"}}
		must.Equal(t, must.Get(store.Decide(ctx, driver.Batch{Budget: "up/key", Now: now.UnixMicro(), Limits: spec.Limits, Items: []driver.Item{hold}}))(t).Items[0].Result, driver.Granted, "the hold")
		outcomes := func(active ...jobs.ActivePass) (found []plan.Outcome) {
			q := must.Get(plan.Read(ctx, store, []*budget.Budget{b}, list, now, plan.Reading{}))(t)
			q.Until = now.Add(time.Hour)
			q.Jobs[0].Active = active
			for _, p := range must.Get(q.Plan(ctx))(t).Passes {
				found = append(found, p.Outcome)
			}
			return found
		}
		check.EqualSlices(t, outcomes(), []plan.Outcome{plan.NotStarted, plan.Complete}, "at 01:05 and 01:15, of a pass that is gone")
		underWay := jobs.ActivePass{Tick: jobs.InstantOf(now.UnixMicro()), Kind: jobs.Scheduled, Since: jobs.InstantOf(now.UnixMicro())}
		check.EqualSlices(t, outcomes(underWay), []plan.Outcome{plan.Complete, plan.NotStarted, plan.NotStarted}, "of the pass, and at 01:05 and 01:15 beside it")
	})
}
