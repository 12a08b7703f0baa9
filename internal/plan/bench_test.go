package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/jobs"
)

// thousand is a configuration of a thousand hourly jobs, which tick in all minutes of the hour.
func thousand(b *testing.B, limit int) (*config.Config, []*jobs.Job) {
	var text strings.Builder
	fmt.Fprintf(&text, `[upstream.up]
[upstream.up.costs]
op = 1
[upstream.up.credential.key]
secret_env = "KEY"
[upstream.up.limit.day]
calendar = "day"
timezone = "America/Los_Angeles"
limit = %d
[upstream.up.limit.trailing]
window = "24h"
limit = %d
`, limit, limit)
	for i := range 1000 {
		fmt.Fprintf(&text, `[job.j%d]
budget = "up/key"
schedule = "%d * * * *"
needs = { op = 3 }
command = ["true"]
`, i, i%60)
	}
	path := filepath.Join(b.TempDir(), "costs.toml")
	must.Do(b, os.WriteFile(path, []byte(text.String()), 0o600))
	cfg, list, err := load(path)
	must.Do(b, err)
	return cfg, list
}

// BenchmarkWeek plans a week of a thousand hourly jobs, 168,000 runs: of a budget that suffices,
// of one that is exhausted for half of each day, and beside a million charges in a SQLite file
// and in Redis, which are read each time.
func BenchmarkWeek(b *testing.B) {
	sqlite := func(b *testing.B) plan.Store {
		return must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	}
	redis := func(b *testing.B) plan.Store {
		return must.Get(redisstore.Open(b.Context(), redistest.Start(b).URL(0), redisstore.Options{Timeout: time.Minute}))(b)
	}
	const million = 1_000_000
	for _, one := range []struct {
		name    string
		open    func(*testing.B) plan.Store
		limit   int
		charges int
	}{{"fits", sqlite, 1e8, 0}, {"short", sqlite, 36_000, 0}, {"fits/charges=1000000", sqlite, 1e8, million}, {"fits/redis/charges=1000000", redis, 1e8, million}} {
		b.Run(one.name, func(b *testing.B) {
			cfg, list := thousand(b, one.limit)
			store := one.open(b)
			defer func() { must.Do(b, store.Close()) }()
			spec := must.Get(cfg.Spec("up/key"))(b)
			fill(b, store, spec, one.charges)
			opened := must.Get(budget.New(store, spec))(b)
			runs := 0
			for b.Loop() {
				q := must.Get(plan.Read(b.Context(), store, []*budget.Budget{opened}, list, time.Now(), plan.Reading{}))(b)
				q.Until = q.From.Add(7 * 24 * time.Hour)
				runs = len(must.Get(q.Plan(b.Context()))(b).Passes)
			}
			b.ReportMetric(float64(runs), "runs")
		})
	}
}

// fill charges a budget so many times.
func fill(b *testing.B, store plan.Store, spec budget.Spec, charges int) {
	for done := 0; done < charges; {
		batch := driver.Batch{Budget: spec.Name, Now: time.Now().UnixMicro(), Limits: spec.Limits}
		for ; done < charges && len(batch.Items) < driver.MaxBatch; done++ {
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("fill", done), Operation: "op", Units: 1, Labels: driver.Labels{Job: fmt.Sprint("j", done%1000)}})
		}
		must.Get(store.Decide(b.Context(), batch))(b)
	}
}
