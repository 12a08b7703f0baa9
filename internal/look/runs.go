package look

import (
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/jobs"
)

// RunsAsked is which runs are asked for.
type RunsAsked struct {
	Most              int       // at most so many, 1 or more
	Since             time.Time // only ticks since; zero: all that are kept
	Outcomes, Regions []string  // only these; empty: all
	Errors            bool      // only what went wrong or found too few units
	Log               bool      // with the last lines of each run's output
}

// wants reports whether a run is one that is asked for.
func (q *RunsAsked) wants(run jobs.Run) bool {
	return (!q.Errors || run.Warning != "" || slices.Contains(answer.WentWrong, run.Outcome) || answer.WantedUnits(run)) &&
		(len(q.Outcomes) == 0 || slices.Contains(q.Outcomes, string(run.Outcome))) &&
		(len(q.Regions) == 0 || slices.Contains(q.Regions, run.Region))
}

// Runs lists the newest runs of jobs that are asked for, and whether there are more.
func (r *Reader) Runs(ctx context.Context, list []*jobs.Job, q RunsAsked) (found []answer.Run, more bool, err error) {
	views, err := answer.LookAtJobs(ctx, r.Now(), r.Store, list)
	if err != nil {
		return nil, false, err
	}
	starving := answer.Starving{State: r.Store, Views: views}
	found = []answer.Run{}
	take := func(pass jobs.Pass) error {
		for _, run := range answer.RunsOf(pass) {
			if !q.Log {
				run.Log = nil
			}
			if !q.wants(run.Run) || more {
				continue
			}
			if more = len(found) == q.Most; more {
				continue
			}
			if q.Errors {
				if err := starving.Look(ctx, &run); err != nil {
					return err
				}
			}
			found = append(found, run)
		}
		return nil
	}
	for _, pass := range answer.UnderWay(views) {
		if !pass.Tick.Before(q.Since) {
			if err := take(pass); err != nil {
				return nil, false, err
			}
		}
	}
	names := make([]string, len(list))
	for i, job := range list {
		names[i] = job.Name
	}
	for pass, err := range jobs.Past(ctx, r.Store, names, q.Since) {
		if err == nil {
			err = take(pass)
		}
		if err != nil {
			return nil, false, err
		}
		if more {
			break
		}
	}
	return found, more, nil
}
