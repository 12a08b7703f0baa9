package answer

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Next is the JSON answer of next.
type Next struct {
	Runs []nextJSON `json:"runs"`
}

type nextJSON struct {
	Job    string   `json:"job"`
	Region string   `json:"region"` // empty where the job names none
	Tick   Instant  `json:"tick"`
	At     Instant  `json:"at"`
	Paused bool     `json:"paused"` // it is skipped, unless the job is resumed before
	Needs  runNeeds `json:"needs"`
	// Fits: the plan finds its units; null: it is not in the plan. FirstCut is why not.
	Fits     *bool         `json:"fits"`
	FirstCut *PlanFirstCut `json:"first_cut"`
}

func NewNext(runs []NextRun) Next {
	answer := Next{[]nextJSON{}}
	for _, r := range runs {
		one := nextJSON{Job: r.Job, Region: r.Region, Tick: Instant(r.Tick), At: Instant(r.At), Paused: r.Paused, Needs: newRunNeeds(r.Needs), FirstCut: r.Why}
		if r.Outcome != "" {
			fits := r.Outcome == plan.Complete
			one.Fits = &fits
		}
		answer.Runs = append(answer.Runs, one)
	}
	return answer
}

// NextRun is an upcoming run.
type NextRun struct {
	Job, Region string
	Tick, At    time.Time
	Paused      bool
	Needs       needs.Estimate
	// Outcome is what the plan says becomes of it, and Why the refusal that keeps it from
	// being complete; empty: it is not in the plan.
	Outcome plan.Outcome
	Why     *PlanFirstCut
}

// Foresee fills in what the plan says of the runs.
func Foresee(runs []NextRun, ahead *Forecast) {
	for i := range runs {
		runs[i].Outcome, runs[i].Why = ahead.Run(runs[i].Job, runs[i].Region, runs[i].Tick)
	}
}

// Upcoming lists the first n runs after an instant, in the order they start, of jobs that
// [LookAhead] returned.
func Upcoming(views []Job, from time.Time, n int) []NextRun {
	var runs []NextRun
	for _, job := range views {
		tick, order := from, job.OrderFrom(job.First, job.NextRegion)
		for i := 0; i < n; {
			if tick = job.Next(tick); tick.IsZero() {
				break
			}
			for place, region := range order {
				runs = append(runs, NextRun{Job: job.Name, Region: region, Tick: tick, At: tick.Add(job.Offset(place)), Paused: job.Pause != nil, Needs: job.Expected.Run(region)})
				i++
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b NextRun) int { return a.At.Compare(b.At) })
	return runs[:min(n, len(runs))]
}
