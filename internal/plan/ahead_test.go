package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// configured is the budget up/key of a configuration on a store, and its jobs.
func configured(t *testing.T, store driver.Store, text string) (*budget.Budget, []*jobs.Job) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	cfg, list, err := load(path)
	must.Do(t, err)
	return must.Get(budget.New(store, must.Get(cfg.Spec("up/key"))(t)))(t), list
}

// minutely is a budget up/key of 10 units a minute, and a job of one unit in three regions.
func minutely(t *testing.T, schedule string) (*memstore.Store, *budget.Budget, []*jobs.Job) {
	store := memstore.New(nil)
	b, list := configured(t, store, `[upstream.up.costs]
op = 1
[upstream.up.limit.l]
limit = 10
window = "1m"
[upstream.up.credential.key]
[job.a]
budget = "up/key"
schedule = "`+schedule+`"
regions = ["A", "B", "C"]
needs = { op = 1 }
command = ["true"]
`)
	return store, b, list
}

// A plan that nobody asked for by itself ends earlier where jobs tick each second.
func TestAheadIsBounded(t *testing.T) {
	store, b, list := minutely(t, "@every 1s")
	now := time.Now()
	_, lived, err := plan.Ahead(t.Context(), store, []*budget.Budget{b}, list, now, now.Add(plan.DefaultSpan))
	must.Do(t, err)
	check.Equal(t, lived.Until.Sub(now), plan.DefaultSpan/4, "the span")
	check.Equal(t, len(lived.Passes), int(plan.DefaultSpan/4/time.Second), "passes")
}

// A lock refuses as a lock, whether of a budget or of a limit.
func TestALockedLimit(t *testing.T) {
	for _, name := range []string{"", "l"} {
		synctest.Test(t, func(t *testing.T) {
			store, b, list := minutely(t, "0 * * * *")
			now := time.Now()
			must.Get(b.Lock(t.Context(), budget.LockOrder{Limit: name, Until: budget.Until{At: now.Add(90 * time.Minute)}, Why: "a test", ByHand: true}))(t)
			_, lived, err := plan.Ahead(t.Context(), store, []*budget.Budget{b}, list, now, now.Add(150*time.Minute))
			must.Do(t, err)
			must.Equal(t, len(lived.Passes), 2, "passes")
			check.Equal(t, lived.Passes[0].Limit, plan.Lock, "refused by")
			check.Equal(t, lived.Passes[1].Outcome, plan.Complete, "after the lock")
		})
	}
}

// The plan knows the charges of a run under way before its daemon tells, also of a budget that
// has only a bucket, or whose other limits do not cover it.
func TestSpentBesideABucket(t *testing.T) {
	const other = "[upstream.up.limit.other]\nlimit = 5\nwindow = \"1h\"\noperations = [\"rare\"]\n"
	for i, more := range []string{"", other, ""} {
		price, counts := 1, "units"
		if i == 2 {
			price, counts = 0, "calls"
		}
		synctest.Test(t, func(t *testing.T) {
			store := must.Get(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "quotactl.db"), sqlitestore.Options{Timeout: time.Minute}))(t)
			defer func() { must.Do(t, store.Close()) }()
			b, list := configured(t, store, fmt.Sprintf("[upstream.up.costs]\nop = %d\nrare = 1\n[upstream.up.limit.l]\ncounts = %q\n", price, counts)+`limit = 10
refill = "1/30s"
`+more+`[upstream.up.credential.key]
[job.a]
budget = "up/key"
schedule = "0 * * * *"
regions = ["A"]
needs = { op = 8 }
command = ["true"]
`)
			now := time.Now()
			claim := map[string]any{"active": []map[string]any{{"holder": "x", "tick": now.UnixMicro(), "kind": "scheduled", "budget": "up/key", "since": now.UnixMicro(), "until": now.Add(time.Minute).UnixMicro()}}}
			must.Get(store.SwapJob(t.Context(), driver.JobSwap{Job: "a", Text: must.Get(json.Marshal(claim))(t)}))(t)
			time.Sleep(time.Second)
			run := "1/" + now.UTC().Format(jobs.TickFormat)
			for range 7 {
				must.Get(b.Charge(t.Context(), budget.Call{Operation: "op", Labels: budget.Labels{Job: "a", Region: "A", Run: run}}))(t)
			}
			q := must.Get(plan.Read(t.Context(), store, []*budget.Budget{b}, list, time.Now(), plan.Reading{}))(t)
			check.Equal(t, q.Jobs[0].Spent[0]["A"].Amounts[0].Calls, 7, "spent")
			q.Until = now.Add(time.Minute)
			check.Equal(t, must.Get(q.Plan(t.Context()))(t).Passes[0].Outcome, plan.Complete, "one call is left to be made, and fits")
		})
	}
}

// What a pass takes after the plan's end is no part of it, and of a pass with a floor all that it
// lacks is named.
func TestPlanEndsWithItsSpan(t *testing.T) {
	plans := func(t *testing.T, config string, span time.Duration) *plan.Plan {
		store := memstore.New(nil)
		b, list := configured(t, store, "[upstream.up.costs]\nop = 1\n[upstream.up.limit.l]\nlimit = 100\nwindow = \"24h\"\n[upstream.up.credential.key]\n"+config)
		now := time.Now()
		_, lived, err := plan.Ahead(t.Context(), store, []*budget.Budget{b}, list, now, now.Add(span))
		must.Do(t, err)
		return lived
	}
	synctest.Test(t, func(t *testing.T) {
		lived := plans(t, `[job.a]
budget = "up/key"
schedule = "30 0 * * *"
regions = ["A", "B", "C"]
stagger = "30m"
parallel = 1
needs = { op = 20 }
command = ["true"]
`, 45*time.Minute)
		all := lived.Budgets[0].Limits[0]
		check.Equal(t, all.Least, 60, "left in the plan, in which two of three regions begin")
		check.Equal(t, all.LeastAt.After(lived.Until), false, "after its end")
	})
	synctest.Test(t, func(t *testing.T) {
		lived := plans(t, `[job.a]
budget = "up/key"
schedule = "10 0 * * *"
needs = { op = 70 }
command = ["true"]
[job.b]
budget = "up/key"
schedule = "20 0 * * *"
regions = ["A", "B", "C"]
floor = 50
needs = { op = 5 }
command = ["true"]
`, 45*time.Minute)
		check.Equal(t, lived.Passes[1].Short, 15+20, "three regions, and what is missing to the floor")
	})
}

// A guarantee that lapses by plan keeps what a run may take at most, as daemons keep it, though a
// run is expected to take less.
func TestKeptByPlanIsTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		b, list := configured(t, store, `[upstream.up.costs]
op = 1
[upstream.up.limit.l]
limit = 100
calendar = "day"
timezone = "UTC"
[upstream.up.share.first]
jobs = ["a"]
units = 60
limits = ["l"]
lapse = "plan"
[upstream.up.credential.key]
[job.a]
budget = "up/key"
schedule = "0 20 * * *"
command = ["true"]
[job.b]
budget = "up/key"
schedule = "0 10 * * *"
needs = { op = 70 }
command = ["true"]
`)
		history := func(most int64) (records []driver.JobRecord) {
			for i := range int64(20) {
				took := []needs.Amount{{Operation: "op", Units: 10, Calls: 10}}
				if i == 3 {
					took[0].Units, took[0].Calls = most, most
				}
				record := jobs.Record{Outcome: jobs.Succeeded, Runs: []jobs.Run{{Outcome: jobs.Succeeded, Spent: took}}}
				records = append(records, driver.JobRecord{At: i, ID: strconv.FormatInt(i, 10), Text: must.Get(json.Marshal(record))(t)})
			}
			return records
		}
		outcome := func() plan.Outcome {
			_, lived, err := plan.Ahead(t.Context(), store, []*budget.Budget{b}, list, time.Now(), time.Now().Add(23*time.Hour))
			must.Do(t, err)
			must.Equal(t, lived.Passes[0].Job, "b", "the first pass")
			return lived.Passes[0].Outcome
		}
		must.Get(store.SwapJob(t.Context(), driver.JobSwap{Job: "a", Text: []byte("{}"), Records: history(10)}))(t)
		check.Equal(t, outcome(), plan.Complete, "beside runs of 10 units")
		must.Get(store.SwapJob(t.Context(), driver.JobSwap{Job: "a", Version: 1, Text: []byte("{}"), Records: history(50)}))(t)
		check.Equal(t, outcome(), plan.NotStarted, "where one run took 50")
	})
}
