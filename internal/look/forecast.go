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

// mostForecasts bounds how many forecasts are kept, or under way for others too.
const mostForecasts = 16

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

// forecast is one of some jobs for the usual span, which is kept.
type forecast struct {
	of     []*jobs.Job
	ended  chan struct{}    // closed when it has been made, or could not be
	at     time.Time        // when it had been made; zero: it is under way
	says   *answer.Forecast // nil: it could not be made
	failed bool             // not because the one who asked first has left
}

// keptForecast is the forecast of jobs for the usual span, or the last one if it is kept. Of those
// who ask at once one makes it, in its own context, and the others wait, each within its own.
func (r *Reader) keptForecast(ctx context.Context, list []*jobs.Job) *answer.Forecast {
	for r.Keeps > 0 {
		f, mine := r.sharedForecast(list)
		switch {
		case f == nil:
			return r.usualForecast(ctx, list)
		case mine:
			return r.makeForecast(ctx, f)
		}
		select {
		case <-f.ended:
		case <-ctx.Done():
			return nil
		}
		if f.says != nil || f.failed {
			return f.says
		}
	}
	return r.usualForecast(ctx, list)
}

func (r *Reader) usualForecast(ctx context.Context, list []*jobs.Job) *answer.Forecast {
	return r.Forecast(ctx, list, r.Now().Add(plan.DefaultSpan))
}

// sharedForecast is the kept forecast of jobs, or one under way; mine: the caller is to make it.
// It is nil if too many others are kept.
func (r *Reader) sharedForecast(list []*jobs.Job) (f *forecast, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	r.forecasts = slices.DeleteFunc(r.forecasts, func(f *forecast) bool { return !f.at.IsZero() && now.Sub(f.at) >= r.Keeps })
	if at := slices.IndexFunc(r.forecasts, func(f *forecast) bool { return slices.Equal(f.of, list) }); at >= 0 {
		return r.forecasts[at], false
	}
	if len(r.forecasts) == mostForecasts {
		return nil, false
	}
	f = &forecast{of: slices.Clone(list), ended: make(chan struct{})}
	r.forecasts = append(r.forecasts, f)
	return f, true
}

// makeForecast makes a forecast for all who wait for it. It keeps no forecast that could not
// be made.
func (r *Reader) makeForecast(ctx context.Context, f *forecast) *answer.Forecast {
	defer func() { // after a panic too
		r.mu.Lock()
		defer r.mu.Unlock()
		if f.at = r.Now(); f.says == nil {
			f.failed = ctx.Err() == nil
			r.forecasts = slices.DeleteFunc(r.forecasts, func(one *forecast) bool { return one == f })
		}
		close(f.ended)
	}()
	f.says = r.usualForecast(ctx, f.of)
	return f.says
}
