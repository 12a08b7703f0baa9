package jobview

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Below each run stands what it will lack by plan, and below all how many will lack nothing.
func TestNext(t *testing.T) {
	noon := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	known := needs.Estimate{Source: needs.Configured, Amounts: []needs.Amount{{Operation: "get", Units: 50, Calls: 50}}}
	var runs []answer.NextRun
	add := func(region string, outcome plan.Outcome, why *answer.PlanFirstCut) {
		runs = append(runs, answer.NextRun{Job: "pull", Region: region, Tick: noon, At: noon, Needs: known, Outcome: outcome, Why: why})
	}
	check.Equal(t, Fits(screen.Pipe(), runs), "", "no runs")
	add("US", plan.Complete, nil)
	check.Equal(t, Fits(screen.Pipe(), runs), "By plan, all runs will have their units.\n", "one that fits")
	day := &answer.PlanFirstCut{At: answer.Instant(noon.Add(time.Minute)), Limit: "day", Short: 1500}
	add("DE", plan.Cut, day)
	add("FR", plan.NotStarted, day)
	add("GB", plan.NotStarted, &answer.PlanFirstCut{At: answer.Instant(noon), Limit: plan.Lock, Lock: &answer.WhyLock{Until: answer.Instant(noon.Add(time.Hour))}})
	add("IN", plan.Skipped, nil)
	add("BR", plan.Failed, day)
	add("AU", plan.Failed, nil)
	add("CA", "", nil)
	runs = append(runs, answer.NextRun{Job: "guess", Tick: noon, At: noon, Needs: needs.Estimate{Source: needs.Unknown}, Outcome: plan.Complete})
	check.Equal(t, Next(screen.Pipe(), runs).String()+Fits(screen.Pipe(), runs), `JOB    REGION  TICK                  AT                    NEEDS
pull   US      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
pull   DE      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will be cut: limit day is 1500 short at 2026-11-20 12:01:00Z
pull   FR      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will not start: limit day is 1500 short at 2026-11-20 12:01:00Z
pull   GB      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will not start at 2026-11-20 12:00:00Z: locked until 2026-11-20
  13:00:00Z: the whole budget
pull   IN      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will be skipped: another pass is under way
pull   BR      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will fail: limit day is 1500 short at 2026-11-20 12:01:00Z
pull   AU      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
  by plan: will not fit
pull   CA      2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  50 configured
guess  -       2026-11-20 12:00:00Z  2026-11-20 12:00:00Z  unknown
By plan, 1 of 7 runs will have their units; of 1 more it is not known what they
need.
`, "next")

	for i := range runs {
		runs[i].Paused = true
	}
	check.Equal(t, Fits(screen.Pipe(), runs), "", "paused")
	check.Equal(t, Fits(screen.Pipe(), []answer.NextRun{{Outcome: plan.Complete, Needs: needs.Estimate{Source: needs.Unknown}}}),
		"It is not known what these runs need, so not whether they will fit.\n", "unknown")
}
