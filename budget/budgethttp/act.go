package budgethttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// actor finishes a request and acts on its response.
type actor struct {
	budget    *budget.Budget
	operation string
	charged   budget.Receipt // the request's; zero: it is unknown when the request was charged
	status    int
	cached    bool // the response says nothing about the upstream's current state
	by        actsFor
}

// actsFor is what an actor acts for: a Transport's attempt, which logs errors and returns
// nil, or Apply, which stops at the first error.
type actsFor interface {
	// within is the context of the next calls of the store.
	within() (context.Context, context.CancelFunc)
	// keep settles. With quietly, the response says nothing but the cost.
	keep(units int64, quietly bool) error
	// giveBack reports whether the request no longer counts.
	giveBack() (bool, error)
	// compared gets the result of a report, locked the result of a refusal.
	compared(rule *feedback.Report, drift budget.Drift, err error) error
	locked(status int, v Verdict, err error) error
}

// hearing reads the response's body by the rules.
func (x actor) hearing(r *reader, header http.Header, cost *costSaid) *hearing {
	return &hearing{reader: r, operation: x.operation, status: x.status, header: header, cached: x.cached, covers: x.covered, cost: cost}
}

// finish settles a request and acts on its response. It compares reports while the
// ledger's count has the greater of the charge and the actual cost, so that a difference
// between the two is never drift. It releases a request that the upstream does not count.
func (x actor) finish(units int64, t facts) error {
	switch {
	case t.free:
		return x.free(t)
	case units > x.charged.Units:
		if err := x.by.keep(units, false); err != nil {
			return err
		}
		return x.act(t, false)
	}
	if err := x.act(t, false); err != nil {
		return err
	}
	return x.by.keep(units, t.silent())
}

// silent reports whether a response said nothing that the store is to know, but perhaps the cost.
func (t facts) silent() bool { return !t.free && t.refusal == nil && len(t.reports) == 0 }

// free releases a request. It first locks what was refused, before others take the units.
// After the release it compares the reports with the ledger's count, which no longer has
// the request.
func (x actor) free(t facts) error {
	reports := t.reports
	t.reports = nil
	if err := x.act(t, false); err != nil {
		return err
	}
	released, err := x.by.giveBack()
	if err != nil {
		return err
	}
	return x.act(facts{reports: reports}, released)
}

// act compares what a response reports with the ledger's count, which has the request
// unless it is released, and locks what the response refuses.
func (x actor) act(t facts, released bool) error {
	switch {
	case x.cached && t.refusal != nil:
		v := Verdict{Rule: t.refusal.Name, Means: t.refusal.Means, Operation: x.operation, Cached: true}
		return x.by.locked(x.status, v, nil)
	case x.cached:
		return nil
	}
	ctx, cancel := x.by.within()
	defer cancel()
	for _, one := range t.reports {
		// Without a charge it is unknown what was counted before it.
		if x.status == http.StatusNotModified || x.charged.ID == "" || !x.covered(one.rule.Limit) {
			continue
		}
		drift, err := x.budget.Report(ctx, budget.UpstreamReport{
			Limit: one.rule.Limit, Operation: x.operation, Remaining: one.remaining, Used: one.used, Reset: one.reset,
			Receipt: x.charged, Released: released,
		})
		if err := x.by.compared(one.rule, drift, err); err != nil {
			return err
		}
	}
	if t.refusal == nil {
		return nil
	}
	verdict, err := x.lock(ctx, t)
	return x.by.locked(x.status, verdict, err)
}

// lock locks the budget, or the limit that the rule names; for an overloaded upstream it
// locks nothing. The Verdict is valid with an error too: nothing was locked then.
func (x actor) lock(ctx context.Context, t facts) (Verdict, error) {
	rule := t.refusal
	v := Verdict{Rule: rule.Name, Means: rule.Means, Operation: x.operation}
	if rule.Means == feedback.Overloaded || x.countsApart(rule.Limit) {
		return v, nil
	}
	order := budget.LockOrder{
		Limit: rule.Limit, Operation: x.operation, Until: t.reset.Until, Longest: rule.Longest,
		Why: rule.Name + ": " + strconv.Itoa(x.status),
	}
	switch {
	case t.reset.passed:
		order.Until = shortLock(rule)
	case order.Until.IsZero():
		order.Until = x.computedReset(rule)
	}
	lock, err := x.budget.Lock(ctx, order)
	if errors.Is(err, budget.ErrInvalid) && !order.Until.At.IsZero() { // its end has passed, by the store's clock
		if t.reset.IsZero() { // it was computed: the new period is open
			return v, nil
		}
		order.Until = shortLock(rule)
		lock, err = x.budget.Lock(ctx, order)
	}
	if err != nil {
		return v, err
	}
	v.Limit, v.Until, v.Asked = lock.Limit, lock.Until, lock.Asked
	return v, nil
}

// computedReset is the lock's end if the response names none. A spent limit returns with
// its calendar's next reset after the request was charged, because a request sent before
// a reset may be answered after it.
func (x actor) computedReset(rule *feedback.Refusal) budget.Until {
	at := x.charged.At
	if at.IsZero() {
		at = time.Now()
	}
	if rule.Means == feedback.Exhausted {
		if reset, ok := x.budget.NextReset(x.limitName(rule.Limit), at); ok {
			return budget.Until{At: reset}
		}
	}
	return budget.Until{After: cmp.Or(rule.Lock, defaultLock)}
}

// shortLock is the lock after a refusal whose reset has passed: the upstream's own window
// may have ended already.
func shortLock(rule *feedback.Refusal) budget.Until {
	return budget.Until{After: min(cmp.Or(rule.Lock, defaultLock), defaultLock)}
}

// limitName is a limit's name for the request's operation.
func (x actor) limitName(name string) string {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == name {
			return l.For(x.operation).Name
		}
	}
	return name
}

// covered reports whether a limit counts the request's operation.
func (x actor) covered(limit string) bool {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == limit {
			return l.Covers(x.operation)
		}
	}
	return false
}

// countsApart reports whether a limit counts each operation on its own, and not the
// request's, so that nothing of it concerns the request.
func (x actor) countsApart(name string) bool {
	return slices.ContainsFunc(x.budget.Spec().Limits, func(l limit.Limit) bool {
		return l.Name == name && l.PerOperation && !l.Covers(x.operation)
	})
}

// defaultLock is how long a rule locks if it sets no Lock.
const defaultLock = time.Minute
