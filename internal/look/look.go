// Package look reads what screens, the page and JSON answers show: budgets and what is left in
// them, jobs, runs, plans and alerts. It spends nothing and writes nothing. Fill in a [Reader]
// and call its verbs; packages view and jobview show what they return to people, package answer
// as JSON.
package look

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/jobs"
)

// Reader reads one store by one configuration. It is safe for concurrent use if Open is.
type Reader struct {
	Config *config.Config
	Jobs   []*jobs.Job // all of the configuration
	Store  open.Backend
	// Open opens a budget on the store. The error is budget.ErrUnknownBudget for a name that
	// the configuration does not have.
	Open func(name string) (*budget.Budget, error)
	URL  string // the store's, redacted
	Now  func() time.Time
	// Log takes what could not be read and is left out.
	Log *slog.Logger
	// Keeps is how long the forecast of a look serves the next ones, which is for those who look
	// again and again: it costs more than all else. 0: each look makes one.
	Keeps time.Duration

	mu        sync.Mutex  // guards all below
	forecasts []*forecast // that are kept or under way
}

// Budgets lists the names of all budgets: those of the configuration, in its order, then those
// that a credential "*" admits and a job names.
func (r *Reader) Budgets() []string {
	names := r.Config.Budgets()
	for _, job := range r.Jobs {
		if !slices.Contains(names, job.Budget) {
			names = append(names, job.Budget)
		}
	}
	return names
}

// open opens budgets in their order.
func (r *Reader) open(names []string) ([]*budget.Budget, error) {
	list := make([]*budget.Budget, len(names))
	for i, name := range names {
		var err error
		if list[i], err = r.Open(name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Overview is what status shows.
type Overview struct {
	At      time.Time
	Store   string // redacted
	Budgets []budget.Status
	Jobs    []answer.Job
	Daemons []jobs.Daemon    // the live ones
	Ahead   *answer.Forecast // nil: there is none
	Alerts  []alert.Health
	Aside   string // of open.Aside
}

// JSON is the answer of status.
func (o Overview) JSON() answer.Overview {
	told := answer.NewOverview(o.At, o.Store, o.Budgets, o.Jobs, o.Daemons, o.Alerts, o.Ahead)
	told.Aside = o.Aside
	return told
}

// Only narrows it as [budget.Only] does, and to the jobs of the budgets that are left.
func (o *Overview) Only(limit, operation string) (err error) {
	o.Budgets, err = budget.Only(o.Budgets, limit, operation)
	o.Jobs = slices.DeleteFunc(slices.Clone(o.Jobs), func(j answer.Job) bool {
		return !slices.ContainsFunc(o.Budgets, func(b budget.Status) bool { return b.Budget == j.Budget })
	})
	return err
}

// Overview reads the budgets named, the jobs that spend them, and the alerts.
func (r *Reader) Overview(ctx context.Context, names []string) (Overview, error) {
	seen, err := r.Present(ctx, names)
	if err != nil {
		return Overview{}, err
	}
	seen.Ahead = r.keptForecast(ctx, r.spending(names))
	return seen, nil
}

// Jobs is what jobs shows.
type Jobs struct {
	At      time.Time
	Store   string // redacted
	Daemons []jobs.Daemon
	Budgets []budget.Status // those that the jobs spend
	Jobs    []answer.Job
	Ahead   *answer.Forecast // nil: there is none
	Unread  error            // why budgets are missing
}

// JSON is the answer of jobs.
func (j Jobs) JSON() answer.Jobs {
	return answer.NewJobs(j.At, j.Store, j.Daemons, j.Budgets, j.Jobs, j.Ahead)
}

// State reads jobs with what they need. A budget that cannot be read is left out, and Unread says
// why: the jobs are shown all the same.
func (r *Reader) State(ctx context.Context, list []*jobs.Job) (Jobs, error) {
	seen := Jobs{At: r.Now(), Store: r.URL}
	var err error
	if seen.Jobs, err = answer.LookAhead(ctx, r.Now(), r.Store, list); err != nil {
		return Jobs{}, err
	}
	if seen.Daemons, err = jobs.Daemons(ctx, r.Store); err != nil {
		return Jobs{}, err
	}
	read := map[string]bool{}
	for _, job := range list {
		if read[job.Budget] {
			continue
		}
		read[job.Budget] = true
		var status budget.Status
		b, err := r.Open(job.Budget)
		if err == nil {
			status, err = b.Rated(ctx)
		}
		if err != nil {
			seen.Unread = errors.Join(seen.Unread, fmt.Errorf("read budget %s: %w", job.Budget, err))
			continue
		}
		seen.Budgets = append(seen.Budgets, status)
	}
	seen.Ahead = r.keptForecast(ctx, list)
	return seen, nil
}

// Next lists the first n runs of jobs after an instant, with what the plan of all jobs makes of
// them.
func (r *Reader) Next(ctx context.Context, list []*jobs.Job, from time.Time, n int) ([]answer.NextRun, error) {
	views, err := answer.LookAhead(ctx, r.Now(), r.Store, list)
	if err != nil {
		return nil, err
	}
	runs := answer.Upcoming(views, from, n)
	if len(runs) > 0 {
		answer.Foresee(runs, r.Forecast(ctx, r.Jobs, runs[len(runs)-1].Tick))
	}
	return runs, nil
}
