package look

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"

	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/jobs"
)

// Present is [Reader.Overview] without the forecast, which is the most expensive part: what is,
// not what will be.
func (r *Reader) Present(ctx context.Context, names []string) (Overview, error) {
	seen := Overview{At: r.Now().UTC(), Store: r.URL}
	budgets, err := r.open(names)
	if err != nil {
		return Overview{}, err
	}
	for _, b := range budgets {
		status, err := b.Rated(ctx)
		if err != nil {
			return Overview{}, err
		}
		seen.Budgets, seen.At = append(seen.Budgets, status), status.At
	}
	if seen.Jobs, err = answer.LookAtJobs(ctx, r.Now(), r.Store, r.spending(names)); err != nil {
		return Overview{}, err
	}
	if seen.Daemons, err = jobs.Daemons(ctx, r.Store); err != nil {
		return Overview{}, err
	}
	seen.Aside = open.Aside(r.Store) // after the budgets: reading them sets aside what is damaged
	seen.Alerts, err = alert.Look(ctx, r.Store, r.Config.Alerts)
	return seen, err
}

// spending are the jobs that spend the budgets named.
func (r *Reader) spending(names []string) []*jobs.Job {
	return slices.DeleteFunc(slices.Clone(r.Jobs), func(job *jobs.Job) bool { return !slices.Contains(names, job.Budget) })
}

// Mark is a fingerprint of what is shown of the present: two marks are equal if nothing that the
// store knows of budgets, jobs and alerts has changed between them. It is cheaper than
// [Reader.Present].
func (r *Reader) Mark(ctx context.Context) (uint64, error) {
	sum := fnv.New64a()
	to := json.NewEncoder(sum)
	budgets, err := r.open(r.Budgets())
	if err != nil {
		return 0, err
	}
	for _, b := range budgets {
		status, err := b.Status(ctx)
		if err == nil {
			err = to.Encode(answer.NewBudget(status))
		}
		if err != nil {
			return 0, err
		}
	}
	names := make([]string, len(r.Jobs))
	for i, job := range r.Jobs {
		names[i] = job.Name
	}
	found, err := r.Store.Jobs(ctx, names)
	if err != nil {
		return 0, err
	}
	for i, document := range found {
		if err := to.Encode([]any{names[i], document.Version}); err != nil {
			return 0, err
		}
	}
	alerts, err := alert.Look(ctx, r.Store, r.Config.Alerts)
	if err != nil {
		return 0, err
	}
	err = to.Encode(alerts)
	return sum.Sum64(), err
}
