package answer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// What a plan says of a budget, a job and a run, as JSON.
func TestForecast(t *testing.T) {
	at := func(hours int) time.Time { return time.Date(2026, time.November, 20, hours, 0, 0, 0, time.UTC) }
	job := func(name, budget string, source needs.Source) plan.Job {
		return plan.Job{Job: &jobs.Job{Name: name, Budget: budget}, Needs: jobs.Needs{Regions: []jobs.RegionNeeds{{Estimate: needs.Estimate{Source: source}}}}}
	}
	q := &plan.Question{
		Budgets: []plan.Budget{{Name: "shop/main", Rough: true}, {Name: "shop/idle"}},
		Jobs:    []plan.Job{job("pull", "shop/main", needs.Configured), job("guess", "shop/main", needs.Unknown), job("spare", "shop/idle", needs.Unknown)},
	}
	limits := []plan.LimitPlan{
		{Limit: limit.Limit{Name: "seen", Limit: 10, Observe: true}, Least: 0, LeastAt: at(1)},
		{Limit: limit.Limit{Name: "week", Limit: 1000}, Least: 100, LeastAt: at(2)},
		{Limit: limit.Limit{Name: "day", Limit: 4000}, Least: 120, LeastAt: at(3)},
	}
	lived := &plan.Plan{From: at(0), Until: at(23), Budgets: []plan.BudgetPlan{{Name: "shop/main", Limits: limits}, {Name: "shop/idle"}}}
	lived.Passes = []*plan.Pass{
		{Job: "pull", Budget: "shop/main", Tick: at(1), Outcome: plan.Complete, Runs: []plan.RunPlan{{Region: "US", Outcome: plan.Complete}}},
		{Job: "pull", Budget: "shop/main", Tick: at(4), Outcome: plan.Cut, At: at(4), Limit: "day", Short: 5, Runs: []plan.RunPlan{
			{Region: "US", Outcome: plan.Complete}, {Region: "DE", Outcome: plan.Cut}, {Region: "FR", Outcome: plan.NotStarted},
		}},
		{Job: "guess", Budget: "shop/main", Tick: at(3), Outcome: plan.NotStarted, At: at(3), Limit: plan.Lock, Short: 1},
		{Job: "guess", Budget: "shop/main", Tick: at(5), Outcome: plan.Skipped},
	}
	f := NewForecast(q, lived)
	says := func(v any, want string) {
		t.Helper()
		check.Equal(t, string(must.Get(json.Marshal(v))(t)), want, "JSON")
	}
	says(f.Budget("shop/main"), `{"until":"2026-11-20T23:00:00.000000Z","passes":4,"complete":1,"first_cut":{"job":"guess","tick":"2026-11-20T03:00:00.000000Z","at":"2026-11-20T03:00:00.000000Z","limit":"lock","short":1,"outcome":"not_started"},"least":{"limit":"day","remaining":120,"at":"2026-11-20T03:00:00.000000Z","empty_at":null},"unknown":["guess"],"rough":true}`)
	says(f.Budget("shop/idle"), `{"until":"2026-11-20T23:00:00.000000Z","passes":0,"complete":0,"first_cut":null,"least":null,"unknown":["spare"],"rough":false}`)
	check.Equal(t, f.Budget("shop/main").Known() && !f.Budget("shop/idle").Known(), true, "needs are known")
	says(f.Job("pull"), `{"until":"2026-11-20T23:00:00.000000Z","passes":2,"complete":1,"first_cut":{"job":"pull","tick":"2026-11-20T04:00:00.000000Z","at":"2026-11-20T04:00:00.000000Z","limit":"day","short":5,"outcome":"cut"}}`)
	lived.Budgets[0].Limits[2].Least = 0
	says(f.Budget("shop/main").Least, `{"limit":"day","remaining":0,"at":"2026-11-20T03:00:00.000000Z","empty_at":"2026-11-20T03:00:00.000000Z"}`)

	run := func(job, region string, hour int, outcome plan.Outcome, short int64) {
		t.Helper()
		got, why := f.Run(job, region, at(hour))
		check.Equal(t, got, outcome, job, region, "at", hour)
		if (why == nil) != (short == 0) || why != nil && why.Short != short {
			t.Errorf("%s %s at %d: why %+v, want %d short", job, region, hour, why, short)
		}
	}
	run("pull", "US", 1, plan.Complete, 0)
	run("pull", "US", 4, plan.Complete, 0)
	run("pull", "DE", 4, plan.Cut, 5)
	run("pull", "FR", 4, plan.NotStarted, 5)
	run("pull", "FR", 1, "", 0)
	run("pull", "US", 2, "", 0)
	run("guess", "", 5, plan.Skipped, 0)

	check.Equal(t, f.Budget("shop/none") == nil && f.Job("none") == nil, true, "what is not in the plan")
	var none *Forecast
	check.Equal(t, none.Budget("shop/main") == nil && none.Job("pull") == nil, true, "no plan")
	outcome, why := none.Run("pull", "US", at(1))
	check.Equal(t, outcome == "" && why == nil, true, "no plan of a run")
}
