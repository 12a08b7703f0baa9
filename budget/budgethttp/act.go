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

// actor settles or releases a request and applies what its response says.
type actor struct {
	budget    *budget.Budget
	operation string
	charged   budget.Receipt // of the request; zero: the time of its charge is unknown
	status    int
	cached    bool // from a cache: it says nothing about the upstream's present state
	by        actsFor
}

// actsFor is an actor's caller: a Transport's attempt, which logs errors and returns
// nil, or Apply, which stops at the first error.
type actsFor interface {
	// within returns the context for the next store calls.
	within() (context.Context, context.CancelFunc)
	keep(units int64) error
	// giveBack reports whether the request no longer counts.
	giveBack() (bool, error)
	// compared takes the result of a report, locked that of a refusal.
	compared(rule *feedback.Report, drift budget.Drift, err error) error
	locked(status int, v Verdict, err error) error
}

// hearing returns the reader of the response's body.
func (x actor) hearing(r *reader, header http.Header, cost *costSaid) *hearing {
	return &hearing{reader: r, operation: x.operation, status: x.status, header: header, cached: x.cached, covers: x.covered, cost: cost}
}

// finish settles a request and applies its response. It releases a request that the
// upstream does not count. The order matters: while a report is compared, our count
// must hold the larger of the charge and the cost, so that a difference between the two
// does not show as drift.
func (x actor) finish(units int64, t facts) error {
	switch {
	case t.free:
		return x.free(t)
	case units > x.charged.Units:
		if err := x.by.keep(units); err != nil {
			return err
		}
		return x.act(t, false)
	}
	if err := x.act(t, false); err != nil {
		return err
	}
	return x.by.keep(units)
}

// free releases a request. It sets the lock of a refusal before others can take the
// units, and compares reports afterwards, when our count no longer has the request.
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

// act applies a response: it compares its reports with our count, which includes the
// request unless that was released, and locks what the response refuses.
func (x actor) act(t facts, released bool) error {
	if x.cached {
		return nil
	}
	ctx, cancel := x.by.within()
	defer cancel()
	for _, one := range t.reports {
		// Without a charge, the count before it is unknown.
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

// lock locks the budget, or the limit that the rule names; for an overloaded upstream
// it locks nothing. The Verdict is valid with an error too; nothing was locked then.
func (x actor) lock(ctx context.Context, t facts) (Verdict, error) {
	rule := t.refusal
	v := Verdict{Rule: rule.Name, Means: rule.Means, Operation: x.operation}
	if rule.Means == feedback.Overloaded {
		return v, nil
	}
	order := budget.LockOrder{Limit: rule.Limit, Operation: x.operation, Until: t.reset, Why: rule.Name + ": " + strconv.Itoa(x.status)}
	if order.Until.IsZero() {
		order.Until = x.computedReset(rule)
	}
	lock, err := x.budget.Lock(ctx, order)
	switch {
	case errors.Is(err, budget.ErrInvalid) && !order.Until.At.IsZero(): // its end has passed meanwhile
		return v, nil
	case err != nil:
		return v, err
	}
	v.Limit, v.Until = lock.Limit, lock.Until
	return v, nil
}

// computedReset is the lock's end when the response names none. For a spent limit it is
// the calendar's next reset after the request was charged, because a request sent
// before a reset may be answered after it.
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

// limitName is the name of the limit that applies to the request's operation.
func (x actor) limitName(name string) string {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == name {
			return l.For(x.operation).Name
		}
	}
	return name
}

// isStored reports whether a response says that it comes from a cache, and so says
// nothing about the upstream's present state.
func isStored(header http.Header) bool {
	age, err := strconv.Atoi(header.Get("Age"))
	return err == nil && age > 0 || header.Get("X-From-Cache") != ""
}

// covered reports whether a limit counts the request's operation. A limit per operation
// does not count operations outside its own.
func (x actor) covered(limit string) bool {
	for _, l := range x.budget.Spec().Limits {
		if l.Name == limit {
			return l.Covers(x.operation)
		}
	}
	return false
}

// defaultLock is how long a rule locks if it does not say.
const defaultLock = time.Minute
