package answer

import (
	"slices"
	"time"

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
}

func NewNext(runs []NextRun) Next {
	answer := Next{[]nextJSON{}}
	for _, r := range runs {
		answer.Runs = append(answer.Runs, nextJSON{r.Job, r.Region, Instant(r.Tick), Instant(r.At), r.Paused, newRunNeeds(r.Needs)})
	}
	return answer
}

// NextRun is an upcoming run.
type NextRun struct {
	Job, Region string
	Tick, At    time.Time
	Paused      bool
	Needs       needs.Estimate
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
				runs = append(runs, NextRun{job.Name, region, tick, tick.Add(job.Offset(place)), job.Pause != nil, job.Expected.Run(region)})
				i++
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b NextRun) int { return a.At.Compare(b.At) })
	return runs[:min(n, len(runs))]
}
