package plan

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// The times of what holds others back, as the daemons have them: a hold's lease, and the
// longest interval at which somebody asks whether a hold has ended.
const (
	holdLease int64 = 60e6
	holdLook  int64 = 2e6
)

// refused is why something does not fit.
type refused struct {
	limit string // empty: a lock of the budget
	// at is the first instant at which it fits if nothing else happens, exactly as a store says
	// it; limit.Never: at none. Beside holds it only says when somebody asks again.
	at    int64
	short int64 // what it lacks in that limit now
	held  bool  // passes hold something of the limit
	lock  bool
	// closed is the lock, if it is one.
	closed *driver.LockView
	// multi: a bucket has too little for several calls; next is when it has more, and last
	// when it last has more before an instant.
	multi bool
	next  int64
	last  func(before int64) int64
	never bool // it can never fit
	// soonest is the first instant at which it may fit if what is under way ends at once.
	soonest int64
}

// never reports whether the question can never fit the limit. What it draws is not checked
// against floor and shares.
func (t *taken) never(q *ask) bool {
	if t.drawn {
		return t.whole > t.counter.limit.Bound(0, false)
	}
	return t.counter.limit.NeverFits(t.whole, q.floor, false, t.share, q.lasts)
}

// refusal is why a question that lacks so much does not fit a limit, and when it will.
func (l *ledger) refusal(q *ask, t *taken, short int64, held usage) *refused {
	c := t.counter
	no := &refused{limit: c.limit.Name, short: short, held: held.used > 0, never: t.never(q)}
	switch {
	case c.limit.Window.Kind == limit.Bucket:
		no.waitForBucket(c, q, c.limit.Bound(q.floor, false)-t.amount)
		if no.soonest = no.at; no.never {
			no.at, no.multi = limit.Never, false
		}
		return no
	case no.never:
		no.at = limit.Never
	default:
		no.at = l.fitsFrom(q, t, held)
		switch {
		case no.at < limit.Never:
		case c.byPlan && !no.held: // less may be needed by then
			no.at = l.now + driver.PlanLook
		default: // because of holds
			no.at = l.now + holdLease
		}
	}
	no.soonest = min(no.at, c.limit.Window.Returns(l.now))
	if len(c.limit.Shares) > 0 && c.limit.Window.Kind == limit.CalendarKind {
		no.soonest = min(no.soonest, c.lapse(l.now), c.ending(l.now)) // what ends in this period does not count in the next
	}
	if no.held || c.byPlan && kept(c.inForce(l.now), c.usage, held, t.share) > 0 { // a pass may give back, or a record free, at any time
		no.soonest = min(no.at, l.now+holdLook)
	}
	return no
}

// waitForBucket says when a bucket is down to an amount.
func (no *refused) waitForBucket(c *counter, q *ask, amount int64) {
	refill := c.limit.Window.Refill
	no.at = refill.Reaches(c.level, amount)
	no.multi = q.several()
	no.next = refill.Reaches(c.level, c.level.Used-1)
	no.last = func(before int64) int64 {
		return refill.Reaches(c.level, refill.Drain(c.level, before).Used)
	}
}

// fitsFrom is the first later instant at which the question fits one limit if nothing else
// happens; limit.Never: at none, because of holds.
func (l *ledger) fitsFrom(q *ask, t *taken, held usage) int64 {
	c := t.counter
	if c.limit.Window.Kind == limit.CalendarKind {
		return l.fitsCalendarFrom(q, t, held)
	}
	left, fits := usage{c.used, slices.Clone(c.shares)}, limit.Never
	c.returning(l.now, func(at int64, one *counted) bool {
		left.add(-one.amount, int(one.share))
		if l.lacks(q, t, at, left, held) > 0 {
			return true
		}
		fits = at
		return false
	})
	return fits
}

// fitsCalendarFrom tries the instants at which guarantees lapse, and the ends of the periods.
func (l *ledger) fitsCalendarFrom(q *ask, t *taken, held usage) int64 {
	c := t.counter
	for at, end := l.now, l.now+c.limit.Horizon(); at <= end; {
		at = c.changes(at)
		if l.lacks(q, t, at, c.after(c.limit.Window.Cut(at), l.now), held) == 0 {
			return at
		}
	}
	return limit.Never
}

// changes is the first instant after one at which guarantees of a calendar lapse or come back.
func (c *counter) changes(after int64) int64 {
	_, until := c.limit.Window.Span(after)
	return min(until, c.lapse(after))
}

// lapse is the first instant after one at which a guarantee lapses, in the period of that one.
func (c *counter) lapse(after int64) int64 {
	first := limit.Never
	for i := range c.limit.Shares {
		if at, ok := c.limit.LapsesAt(i, after); ok && at > after {
			first = min(first, at)
		}
	}
	return first
}

// together puts a refusal off until all limits fit at one instant: a guarantee that has lapsed
// may be back by then.
func (l *ledger) together(q *ask, list []taken, no *refused) {
	var lapsing []*taken
	horizon := int64(0)
	for i := range list {
		if c := list[i].counter; !c.limit.Observe && c.lapses {
			lapsing, horizon = append(lapsing, &list[i]), max(horizon, c.limit.Horizon())
		}
	}
	if len(lapsing) == 0 {
		return
	}
	at := no.at
	fits := func(t *taken) bool {
		c := t.counter
		return l.lacks(q, t, at, c.after(c.limit.Window.Cut(at), l.now), l.held(c)) == 0
	}
	for slices.ContainsFunc(lapsing, func(t *taken) bool { return !fits(t) }) {
		next := limit.Never
		for _, t := range lapsing {
			next = min(next, t.counter.changes(at))
		}
		if at = next; at-no.at <= horizon {
			continue
		}
		switch { // they never fit together
		case q.several(): // which looks at the present alone
			return
		case len(l.holds) > 0: // unless a hold ends
			no.at = max(no.at, l.now+holdLease)
			return
		}
		*no = refused{limit: lapsing[0].counter.limit.Name, short: no.short, at: limit.Never, soonest: limit.Never, never: true}
		return
	}
	no.at = at
}
