package answer

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// LookAhead is [LookAtJobs], and what the jobs are expected to take.
func LookAhead(ctx context.Context, now time.Time, state jobs.State, list []*jobs.Job) ([]Job, error) {
	views, err := LookAtJobs(ctx, now, state, list)
	if err != nil {
		return nil, err
	}
	found, err := jobs.ReadNeeds(ctx, state, list)
	if err != nil {
		return nil, err
	}
	for i := range views {
		views[i].Expected = &found[i]
	}
	return views, nil
}

// runNeeds is what a run or a pass is expected to take.
type runNeeds struct {
	Units      *int64         `json:"units"` // null: unknown
	Source     needs.Source   `json:"source"`
	Runs       int            `json:"runs,omitempty"`       // the complete runs it was learned from, of several regions the fewest
	Operations []needs.Amount `json:"operations,omitempty"` // left out if unknown
}

func newRunNeeds(e needs.Estimate) runNeeds {
	n := runNeeds{Source: e.Source, Runs: e.Runs, Operations: e.Amounts}
	if units, known := e.Units(); known {
		n.Units = &units
	}
	return n
}

// passNeeds is what a pass of all regions is expected to take, and each of its runs.
type passNeeds struct {
	runNeeds
	Regions []regionNeeds `json:"regions"`
}

type regionNeeds struct {
	Region string `json:"region"` // empty where the job names none
	runNeeds
}

func newPassNeeds(n *jobs.Needs) *passNeeds {
	if n == nil {
		return nil
	}
	pass := &passNeeds{newRunNeeds(n.Pass(nil)), []regionNeeds{}}
	for _, r := range n.Regions {
		pass.Regions = append(pass.Regions, regionNeeds{r.Region, newRunNeeds(r.Estimate)})
	}
	return pass
}
