package answer

import (
	"time"

	"github.com/quotactl/quotactl/internal/plan"
)

// Forecast is a plan, looked up by budget, job and run.
type Forecast struct {
	lived  *plan.Plan
	rough  map[string]bool // budgets whose returns are known to the hour
	jobs   map[string]plan.JobPlan
	names  []string        // of the jobs, in the order of the question
	guess  map[string]bool // jobs whose needs are unknown
	passes map[passKey]*plan.Pass

	// What another process said instead of a plan; nil: there is a plan.
	budgetsTold map[string]*BudgetForecast
	jobsTold    map[string]*JobForecast
}

type passKey struct {
	job  string
	tick int64
}

// NewForecast is the forecast of a plan.
func NewForecast(q *plan.Question, lived *plan.Plan) *Forecast {
	f := &Forecast{
		lived: lived, rough: map[string]bool{}, jobs: map[string]plan.JobPlan{}, guess: map[string]bool{}, passes: map[passKey]*plan.Pass{},
	}
	for _, j := range q.Sums(lived) {
		f.jobs[j.Name], f.names = j, append(f.names, j.Name)
	}
	for _, name := range q.Guesses() {
		f.guess[name] = true
	}
	for i := range q.Budgets {
		f.rough[q.Budgets[i].Name] = q.Budgets[i].Rough
	}
	for _, p := range lived.Passes {
		f.passes[passKey{p.Job, p.Tick.UnixMicro()}] = p
	}
	return f
}

// BudgetForecast is what the plan says of a budget.
type BudgetForecast struct {
	Until    Instant       `json:"until"`
	Passes   int           `json:"passes"`
	Complete int           `json:"complete"`
	FirstCut *PlanFirstCut `json:"first_cut"`
	// Least is the limit that the plan brings closest to empty at any time; null: nothing is
	// planned.
	Least *PlanLeast `json:"least"`
	// Unknown are the jobs whose needs are unknown: the plan counts nothing
	// for them.
	Unknown []string `json:"unknown"`
	// Rough: what returns is known to the hour.
	Rough bool `json:"rough"`
	known bool // the needs of at least one job are
}

// PlanLeast is the least that is left of a limit, and when.
type PlanLeast struct {
	Limit     string  `json:"limit"`
	Remaining int64   `json:"remaining"`
	At        Instant `json:"at"`
	EmptyAt   Instant `json:"empty_at"` // null: it is not empty
}

// Budget is what the plan says of a budget; nil: no job of the plan spends it, or there is no
// plan.
func (f *Forecast) Budget(name string) *BudgetForecast {
	switch {
	case f == nil:
		return nil
	case f.lived == nil:
		return f.budgetsTold[name]
	}
	var found *BudgetForecast
	for _, b := range f.lived.Budgets {
		if b.Name == name {
			found = &BudgetForecast{Until: Instant(f.lived.Until.UTC()), Rough: f.rough[name], Least: newPlanLeast(b.Tightest()), Unknown: []string{}}
		}
	}
	if found == nil {
		return nil
	}
	var first *plan.Pass
	for _, job := range f.names {
		j := f.jobs[job]
		if j.Budget != name {
			continue
		}
		if f.guess[job] {
			found.Unknown = append(found.Unknown, job)
		} else {
			found.known = true
		}
		found.Passes, found.Complete = found.Passes+j.Passes, found.Complete+j.Complete
		if j.First != nil && (first == nil || j.First.At.Before(first.At)) {
			first = j.First
		}
	}
	found.FirstCut = newFirstCut(first)
	return found
}

// Known reports whether it is known of a job of the budget what it needs.
func (b *BudgetForecast) Known() bool { return b.known }

func newPlanLeast(l *plan.LimitPlan) *PlanLeast {
	if l == nil {
		return nil
	}
	found := &PlanLeast{Limit: l.Name, Remaining: l.Least, At: Instant(l.LeastAt)}
	if l.Least == 0 {
		found.EmptyAt = found.At
	}
	return found
}

// JobForecast is what the plan says of a job's passes.
type JobForecast struct {
	Until    Instant       `json:"until"`
	Passes   int           `json:"passes"`
	Complete int           `json:"complete"`
	FirstCut *PlanFirstCut `json:"first_cut"`
}

// Job is what the plan says of a job; nil: it is not in the plan, or there is none.
func (f *Forecast) Job(name string) *JobForecast {
	switch {
	case f == nil:
		return nil
	case f.lived == nil:
		return f.jobsTold[name]
	}
	j, known := f.jobs[name]
	if !known {
		return nil
	}
	return &JobForecast{Instant(f.lived.Until.UTC()), j.Passes, j.Complete, newFirstCut(j.First)}
}

// Run is what becomes of a run, and why; empty: that is not in the plan.
func (f *Forecast) Run(job, region string, tick time.Time) (plan.Outcome, *PlanFirstCut) {
	if f == nil || f.lived == nil {
		return "", nil
	}
	p := f.passes[passKey{job, tick.UnixMicro()}]
	if p == nil {
		return "", nil
	}
	if p.Outcome == plan.Skipped {
		return plan.Skipped, nil
	}
	for _, r := range p.Runs {
		if r.Region == region {
			if r.Outcome == plan.Complete || p.At.IsZero() {
				return r.Outcome, nil
			}
			return r.Outcome, newFirstCut(p)
		}
	}
	return "", nil
}
