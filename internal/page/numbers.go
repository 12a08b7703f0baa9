package page

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// The terms of the kinds of numbers.
var (
	// ofPresent are those of what a page is about: it waits for them.
	ofPresent = terms{fresh: 2 * time.Second, patient: 150 * time.Millisecond, first: visitWaits}
	// ofPast are those of what changes little.
	ofPast = terms{fresh: 15 * time.Second, patient: 100 * time.Millisecond, first: visitWaits}
	// ofFuture are those of a plan: no page waits long for one.
	ofFuture = terms{fresh: time.Minute, costs: 20, patient: 0, first: 25 * time.Millisecond, slow: true, ageing: true}
	// ofSearch are those of what may have to read all records of all jobs.
	ofSearch = terms{fresh: 2 * time.Second, patient: 100 * time.Millisecond, first: 100 * time.Millisecond, slow: true}
	// ofAnswer are those of an answer that reads the whole ledger.
	ofAnswer = terms{fresh: 2 * time.Second, patient: 100 * time.Millisecond, first: 60 * time.Millisecond, slow: true, ageing: true}
)

// overview is the state of all budgets and jobs, and how alerts fare.
func (v *visit) overview() (look.Overview, bool) {
	return take(v, "budgets and jobs", "overview", ofPresent, func(ctx context.Context, from *look.Reader) (look.Overview, error) {
		return from.Present(ctx, from.Budgets())
	})
}

// status is the state of one budget.
func (v *visit) status(name string) (budget.Status, bool) {
	return take(v, "the budget", "budget "+name, ofPresent, func(ctx context.Context, from *look.Reader) (budget.Status, error) {
		b, err := from.Open(name)
		if err != nil {
			return budget.Status{}, err
		}
		return b.Rated(ctx)
	})
}

// spending is who spent a budget.
func (v *visit) spending(name string, span, who time.Duration) (look.Spending, bool) {
	key := "spending " + name + " " + span.String() + " " + who.String()
	return take(v, "use by hour", key, ofPast, func(ctx context.Context, from *look.Reader) (look.Spending, error) {
		return from.Spending(ctx, name, span, who)
	})
}

// foresight is the plan of all jobs for a span; false until it has been made for the first time.
func (v *visit) foresight(span time.Duration) (look.Foresight, bool) {
	t := ofFuture
	if v.live {
		t.costs = lookCosts
	}
	return take(v, "the plan", "plan "+span.String(), t, func(ctx context.Context, from *look.Reader) (look.Foresight, error) {
		return from.Foresee(ctx, span)
	})
}

// ahead is a job's state with what it needs.
type ahead struct {
	jobs    []answer.Job
	daemons []jobs.Daemon
}

// state is the state of jobs with their needs; key names the jobs.
func (v *visit) state(key string, list []*jobs.Job) (ahead, bool) {
	return take(v, "jobs", "jobs "+key, ofPresent, func(ctx context.Context, from *look.Reader) (ahead, error) {
		var seen ahead
		var err error
		if seen.jobs, err = answer.LookAhead(ctx, from.Now(), from.Store, list); err == nil {
			seen.daemons, err = jobs.Daemons(ctx, from.Store)
		}
		return seen, err
	})
}

// mostPasses is how many of a job's passes a timeline reads at most.
const mostPasses = 200

// past are the passes of jobs since an instant, by job, the newest first.
func (v *visit) past(key string, list []*jobs.Job, span time.Duration) (map[string][]jobs.Record, bool) {
	return take(v, "past passes", "passes "+span.String()+" "+key, ofPast, func(ctx context.Context, from *look.Reader) (map[string][]jobs.Record, error) {
		found := map[string][]jobs.Record{}
		for _, job := range list {
			passes, err := from.Passes(ctx, job.Name, from.Now().Add(-span), mostPasses)
			if err != nil {
				return nil, err
			}
			found[job.Name] = passes
		}
		return found, nil
	})
}

// found are runs, and whether there are more.
type found struct {
	runs []answer.Run
	more bool
}

// ran are the newest runs of jobs; key names what is asked for.
func (v *visit) ran(key string, list []*jobs.Job, asked look.RunsAsked) (found, bool) {
	t := ofPresent
	if len(asked.Outcomes) > 0 || asked.Errors {
		t = ofSearch
	}
	return take(v, "runs", "runs "+key, t, func(ctx context.Context, from *look.Reader) (found, error) {
		runs, more, err := from.Runs(ctx, list, asked)
		return found{runs, more}, err
	})
}

// explain is what a call would get, and why.
func (v *visit) explain(name string, call budget.Call) (budget.Why, bool) {
	key := fmt.Sprintf("why %q %q %q", name, call.Operation, call.Labels.Job)
	return take(v, "the answer", key, ofAnswer, func(ctx context.Context, from *look.Reader) (budget.Why, error) {
		b, err := from.Open(name)
		if err != nil {
			return budget.Why{}, err
		}
		return b.Why(ctx, call)
	})
}

// told is how alerts fare, and what is open.
type told struct {
	health []alert.Health
	open   []alert.Situation
}

func (v *visit) told() (told, bool) {
	return take(v, "alerts", "alerts", ofPresent, func(ctx context.Context, from *look.Reader) (told, error) {
		var seen told
		var err error
		if seen.health, err = alert.Look(ctx, from.Store, from.Config.Alerts); err == nil {
			seen.open, err = alert.Open(ctx, from.Store, from.Config.Alerts)
		}
		return seen, err
	})
}

// usual is the span of the plan that all pages but /plan show.
const usual = plan.DefaultSpan
