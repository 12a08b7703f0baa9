package budgethttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
)

// actor does what a response asks for.
type actor struct {
	budget    *budget.Budget
	operation string
	charged   budget.Receipt // of the request; zero: it is not known when that was charged
	released  bool           // it is no longer charged, and the upstream does not count it
}

// report has the budget compare what the upstream counts with its own count.
func (x actor) report(ctx context.Context, one reported) (budget.Drift, error) {
	return x.budget.Report(ctx, budget.UpstreamReport{
		Limit: one.rule.Limit, Operation: x.operation, Remaining: one.remaining, Used: one.used, Reset: one.reset,
		Receipt: x.charged, Released: x.released,
	})
}

// lock has the budget, or the limit that the rule names, closed; for an overloaded
// upstream nothing is. The Verdict is good with an error too: nothing was locked then.
func (x actor) lock(ctx context.Context, status int, t told) (Verdict, error) {
	rule := t.refusal
	v := Verdict{Rule: rule.Name, Means: rule.Means, Operation: x.operation}
	if rule.Means == feedback.Overloaded {
		return v, nil
	}
	order := budget.LockOrder{Limit: rule.Limit, Operation: x.operation, Until: t.reset, Why: rule.Name + ": " + strconv.Itoa(status)}
	if order.Until.IsZero() {
		order.Until = x.computedReset(rule)
	}
	lock, err := x.budget.Lock(ctx, order)
	switch {
	case errors.Is(err, budget.ErrInvalid) && !order.Until.At.IsZero(): // its end has passed since
		return v, nil
	case err != nil:
		return v, err
	}
	v.Limit, v.Until = lock.Limit, lock.Until
	return v, nil
}

// computedReset is when a rule's lock ends of which the response does not say. A
// spent limit comes back with its calendar's next reset after the request was
// charged: what was asked before a reset may be answered after it.
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
	if rule.Lock > 0 {
		return budget.Until{After: rule.Lock}
	}
	return budget.Until{After: defaultLock}
}

// limitName is a limit's name as it stands for the request's operation.
func (x actor) limitName(name string) string {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == name {
			return l.For(x.operation).Name
		}
	}
	return name
}

// isStored reports whether a response says that it comes from a cache: it tells
// nothing of the upstream now.
func isStored(header http.Header) bool {
	age, err := strconv.Atoi(header.Get("Age"))
	return err == nil && age > 0 || header.Get("X-From-Cache") != ""
}

// covered reports whether a limit counts the request's operation: one that is one
// for each has none for others.
func (x actor) covered(limit string) bool {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == limit {
			return l.Covers(x.operation)
		}
	}
	return false
}

// defaultLock is for how long a rule locks that says nothing.
const defaultLock = time.Minute
