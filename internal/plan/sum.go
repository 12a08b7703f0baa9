package plan

import (
	"github.com/quotactl/quotactl/jobs/needs"
)

// JobPlan is what becomes of a job's passes.
type JobPlan struct {
	Name, Budget string
	// Passes are all of the plan, and the others how many of them end so.
	Passes, Complete, Cut, NotStarted, Deferred, Skipped, Failed int
	Units                                                        int64
	Needs                                                        needs.Estimate // of a pass of all regions
	// First is the first pass that is cut or not started; nil: none is.
	First *Pass
}

// Sums sums up the passes of each job, in the order of the question.
func (q *Question) Sums(p *Plan) []JobPlan {
	list := make([]JobPlan, len(q.Jobs))
	at := map[string]*JobPlan{}
	for i := range q.Jobs {
		one := &q.Jobs[i]
		list[i] = JobPlan{Name: one.Name, Budget: one.Budget, Needs: one.Needs.Pass(nil)}
		at[one.Name] = &list[i]
	}
	for _, pass := range p.Passes {
		j := at[pass.Job]
		j.Passes++
		j.Units += pass.Units
		switch pass.Outcome {
		case Complete:
			j.Complete++
		case Cut:
			j.Cut++
		case NotStarted:
			j.NotStarted++
		case Deferred:
			j.Deferred++
		case Skipped:
			j.Skipped++
		case Failed:
			j.Failed++
		}
		if pass.Wanting() && (j.First == nil || pass.At.Before(j.First.At)) {
			j.First = pass
		}
	}
	return list
}

// Complete is how many passes of the plan are complete.
func (p *Plan) Complete() (n int) {
	for _, pass := range p.Passes {
		if pass.Outcome == Complete {
			n++
		}
	}
	return n
}

// Guesses are the jobs whose needs are unknown: their runs take nothing in
// the plan.
func (q *Question) Guesses() (names []string) {
	for i := range q.Jobs {
		if q.Jobs[i].unknown() {
			names = append(names, q.Jobs[i].Name)
		}
	}
	return names
}

// Learned reports whether the needs of a job were learned, so that its runs may take more or
// less than in the plan.
func (q *Question) Learned() bool {
	for i := range q.Jobs {
		for _, r := range q.Jobs[i].Needs.Regions {
			if r.Source == needs.Learned {
				return true
			}
		}
	}
	return false
}
