package plan

import (
	"slices"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// Tightest is the tightest limit of a budget, each taken when the least of it is left; nil: none
// refuses anything.
func (b *BudgetPlan) Tightest() *LimitPlan {
	var then budget.Status
	for _, l := range b.Limits {
		then.Limits = append(then.Limits, budget.LimitStatus{Limit: l.Limit, Used: max(l.UsedNow, l.Limit.Limit-l.Least), Remaining: l.Least})
	}
	tightest := then.Tightest()
	if !tightest.Refuses() {
		return nil
	}
	return &b.Limits[slices.IndexFunc(b.Limits, func(l LimitPlan) bool { return l.Name == tightest.Name })]
}

// Now is what a planned budget has left at the beginning of the plan, without what is held or
// kept, and its locks.
func (q *Question) Now(b *BudgetPlan) budget.Status {
	now := budget.Status{Budget: b.Name, At: q.From}
	for _, l := range b.Limits {
		now.Limits = append(now.Limits, budget.LimitStatus{Limit: l.Limit, Used: l.UsedNow, Remaining: l.Remaining(l.UsedNow)})
	}
	if at := slices.IndexFunc(q.Budgets, func(asked Budget) bool { return asked.Name == b.Name }); at >= 0 {
		now.Observe = q.Budgets[at].Observe
		for i := range q.Budgets[at].Locks {
			now.Locks = append(now.Locks, lockOf(&q.Budgets[at].Locks[i]))
		}
	}
	return now
}

// lockOf is a lock as a budget's status has it.
func lockOf(l *driver.LockView) budget.Lock {
	return budget.Lock{Limit: l.Limit, Until: instant(l.Until), Since: instant(l.Since), Why: l.Why}
}
