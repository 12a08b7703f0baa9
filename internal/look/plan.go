package look

import (
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// MostPlan is the longest span that can be planned.
const MostPlan = 62 * 24 * time.Hour

// Forecast is the plan of jobs until an instant, from ledgers that are read by the hour where
// they are large; nil if there are no jobs, if the instant is too far off, or if it cannot be
// made, which is logged.
func (r *Reader) Forecast(ctx context.Context, list []*jobs.Job, until time.Time) *answer.Forecast {
	now := r.Now()
	if len(list) == 0 || until.Sub(now) > MostPlan {
		return nil
	}
	budgets, err := r.open(r.Budgets())
	var question *plan.Question
	var lived *plan.Plan
	if err == nil {
		question, lived, err = plan.Ahead(ctx, r.Store, budgets, list, now, until)
	}
	if err != nil {
		r.Log.Warn("what the next passes will lack is not known", "error", err)
		return nil
	}
	return answer.NewForecast(question, lived)
}

// keptForecast is the forecast of jobs for the usual span, or the last one if it is kept.
func (r *Reader) keptForecast(ctx context.Context, list []*jobs.Job) *answer.Forecast {
	if r.Keeps == 0 {
		return r.Forecast(ctx, list, r.Now().Add(plan.DefaultSpan))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.Now(); r.foreseen.IsZero() || now.Sub(r.foreseen) >= r.Keeps || !slices.Equal(list, r.aheadOf) {
		r.ahead, r.aheadOf, r.foreseen = r.Forecast(ctx, list, now.Add(plan.DefaultSpan)), slices.Clone(list), now
	}
	return r.ahead
}

// Answer answers a question. With advise, which loads the configuration with a setting, it
// looks for advice where a pass lacks units.
func Answer(ctx context.Context, question *plan.Question, advise func(set string) (*plan.Question, error)) (*answer.Plan, error) {
	lived, err := question.Plan(ctx)
	if err != nil {
		return nil, err
	}
	high, err := highPlan(ctx, question)
	if err != nil {
		return nil, err
	}
	var advice *plan.Advice
	if advise != nil {
		if advice, err = question.Advise(ctx, lived, advise); err != nil {
			return nil, err
		}
	}
	says := answer.NewPlan(question, lived, high, advice, advise != nil)
	return &says, nil
}
