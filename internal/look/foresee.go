package look

import (
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// Foresight is what one plan of all jobs says, in all forms in which it is shown.
type Foresight struct {
	From, Until time.Time
	Plan        *answer.Plan
	Forecast    *answer.Forecast
	Passes      map[string][]*plan.Pass // by job, in the order of their ticks
	// Unknown are the jobs whose needs are unknown: the plan counts nothing for
	// them.
	Unknown map[string]bool
}

// Foresee plans all jobs for a span, from ledgers that are read by the hour where they are large.
// Where jobs tick very often, it ends earlier than asked.
func (r *Reader) Foresee(ctx context.Context, span time.Duration) (Foresight, error) {
	budgets, err := r.open(r.Budgets())
	if err != nil {
		return Foresight{}, err
	}
	now := r.Now()
	question, lived, err := plan.Ahead(ctx, r.Store, budgets, r.Jobs, now, now.Add(min(span, MostPlan)))
	if err != nil {
		return Foresight{}, err
	}
	high, err := highPlan(ctx, question)
	if err != nil {
		return Foresight{}, err
	}
	says := answer.NewPlan(question, lived, high, nil, false)
	seen := Foresight{From: lived.From, Until: lived.Until, Plan: &says, Forecast: answer.NewForecast(question, lived), Passes: map[string][]*plan.Pass{}, Unknown: map[string]bool{}}
	for _, name := range question.Guesses() {
		seen.Unknown[name] = true
	}
	for _, pass := range lived.Passes {
		seen.Passes[pass.Job] = append(seen.Passes[pass.Job], pass)
	}
	for _, list := range seen.Passes {
		slices.SortStableFunc(list, func(a, b *plan.Pass) int { return a.Tick.Compare(b.Tick) })
	}
	return seen, nil
}

// highPlan is the plan in which each run takes what nine of ten do not exceed; nil: no needs were
// learned.
func highPlan(ctx context.Context, question *plan.Question) (*plan.Plan, error) {
	if !question.Learned() {
		return nil, nil
	}
	more := *question
	more.High = true
	return more.Plan(ctx)
}

// Passes reads the records of a job's passes since an instant, the newest first: at most so many.
func (r *Reader) Passes(ctx context.Context, job string, since time.Time, most int) ([]jobs.Record, error) {
	return jobs.History(ctx, r.Store, job, since, time.Time{}, most)
}
