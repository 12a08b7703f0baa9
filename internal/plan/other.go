package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// Other is the same question of another configuration: of its limits, prices and jobs, beside
// the same ledgers. A job of the same name is where the present one is, and what is known of
// its needs holds unless its prices or pages differ. An automatic headroom is what it is now.
func (q *Question) Other(ctx context.Context, from Store, budgets []*budget.Budget, list []*jobs.Job) (*Question, error) {
	other := &Question{From: q.From, Until: q.Until, High: q.High}
	for _, b := range budgets {
		if !slices.ContainsFunc(list, func(j *jobs.Job) bool { return j.Budget == b.Name() }) {
			continue
		}
		one := newBudget(b.Name(), b.Spec())
		var before Budget
		if at := slices.IndexFunc(q.Budgets, func(p Budget) bool { return p.Name == one.Name }); at >= 0 {
			before = q.Budgets[at]
		} else {
			var err error
			if before, err = readBudget(ctx, from, b, q.From, Reading{}, nil); err != nil {
				return nil, err
			}
		}
		one.Rows, one.Levels, one.Locks, one.Holds, one.Rough = before.Rows, before.Levels, before.Locks, before.Holds, before.Rough
		for i, l := range one.Limits {
			if at := slices.IndexFunc(before.Limits, func(p limit.Limit) bool { return p.Name == l.Name && p.Auto == l.Auto && p.Quota == l.Quota }); at >= 0 && l.Auto > 0 {
				one.Limits[i] = l.WithHeadroom(before.Limits[at].Headroom)
			}
		}
		other.Budgets = append(other.Budgets, one)
	}
	var changed []*jobs.Job
	for _, j := range list {
		one := Job{Job: j}
		if at := slices.IndexFunc(q.Jobs, func(p Job) bool { return p.Name == j.Name }); at >= 0 {
			one = q.Jobs[at]
			one.Job = j
			if !jobs.NeedAlike(j, q.Jobs[at].Job) {
				changed = append(changed, j)
			}
		} else {
			changed = append(changed, j)
		}
		other.Jobs = append(other.Jobs, one)
	}
	expected, err := jobs.ReadNeeds(ctx, from, changed)
	if err != nil {
		return nil, fmt.Errorf("read what the jobs need: %w", err)
	}
	for i, j := range changed {
		at := slices.IndexFunc(other.Jobs, func(p Job) bool { return p.Name == j.Name })
		other.Jobs[at].Needs = expected[i]
	}
	return other, nil
}
