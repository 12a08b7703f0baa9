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

// refusal is why a question that lacks so much does not fit a limit, and when it will.
func (l *ledger) refusal(q *ask, t *taken, short int64) *refused {
	c := t.counter
	held, heldBy := l.held(c)
	no := &refused{limit: c.limit.Name, short: short, held: held > 0}
	room := c.limit.Bound(q.floor, false) - t.amount - held
	switch {
	case c.limit.NeverFits(t.whole, q.floor, false, t.share, q.lasts):
		no.at, no.never = limit.Never, true
	case c.limit.Window.Kind == limit.Bucket:
		no.at = c.limit.Window.Refill.Reaches(c.level, room)
		no.multi = q.look && (len(q.needs) > 1 || q.needs[0].Calls > 1)
		no.last = func(latest int64) int64 {
			refill := c.limit.Window.Refill
			return refill.Reaches(c.level, refill.Drain(c.level, latest).Used)
		}
		no.next = c.limit.Window.Refill.Reaches(c.level, c.level.Used-1)
	case room < 0: // because of holds
		no.at = l.now + holdLease
	case len(c.limit.Shares) > 0:
		no.at = l.sharedFitsAt(q, t, held, heldBy)
	case c.limit.Window.Kind == limit.CalendarKind:
		no.at = l.calendarFitsAt(c, func(used int64, _ []int64, _ int64) bool { return used <= room })
	default:
		used := c.used
		c.returning(l.now, func(at int64, one *counted) bool {
			used -= one.amount
			no.at = at
			return used > room
		})
	}
	if no.at == limit.Never && held > 0 && !no.never {
		no.at = l.now + holdLease
	}
	if c.limit.ByPlan() && no.at == limit.Never && !no.never { // less may be needed by then
		no.at = l.now + driver.PlanLook
	}
	no.soonest = no.at
	switch {
	case c.limit.Window.Kind == limit.Bucket:
	case held > 0, c.limit.ByPlan() && kept(c.limit.InForce(l.now), c.shares, heldBy, t.share) > 0:
		no.soonest = min(no.at, l.now+holdLook)
	default:
		no.soonest = min(no.at, c.limit.Window.Returns(l.now))
	}
	return no
}

// sharedFitsAt is the first instant at which a question fits a divided limit if nothing else
// happens.
func (l *ledger) sharedFitsAt(q *ask, t *taken, held int64, heldBy []int64) int64 {
	c := t.counter
	bound, room := c.limit.Bound(q.floor, false)-t.amount-held, c.limit.Bound(0, false)-t.amount-held
	fits := func(used int64, shares []int64, at int64) bool {
		return used <= bound && used+kept(c.limit.InForce(at), shares, heldBy, t.share) <= room
	}
	if c.limit.Window.Kind == limit.CalendarKind {
		return l.calendarFitsAt(c, fits)
	}
	used, shares, found := c.used, slices.Clone(c.shares), limit.Never
	last := l.now
	c.returning(l.now, func(at int64, one *counted) bool {
		if at > last && last > l.now && fits(used, shares, last) {
			found = last
			return false
		}
		last = at
		used -= one.amount
		if one.share >= 0 {
			shares[one.share] -= one.amount
		}
		return true
	})
	if found == limit.Never && last > l.now && fits(used, shares, last) {
		found = last
	}
	return found
}

// calendarFitsAt tries the lapses and the ends of a calendar's periods.
func (l *ledger) calendarFitsAt(c *counter, fits func(used int64, shares []int64, at int64) bool) int64 {
	for from := l.now; from-l.now <= c.limit.Horizon(); {
		_, until := c.limit.Window.Span(from)
		tries := []int64{until}
		for _, lapse := range c.limit.Lapses() {
			if at := until - c.limit.Window.Guard - lapse; at > from {
				tries = append(tries, at)
			}
		}
		slices.Sort(tries)
		for _, at := range tries {
			if used, shares := c.usedAt(at, l.now); fits(used, shares, at) {
				return at
			}
		}
		from = until
	}
	return limit.Never
}

// together puts a refusal off until all limits fit at one instant: a guarantee that has lapsed
// may be back by then.
func (l *ledger) together(q *ask, list []taken, no *refused) {
	var lapsing []*taken
	horizon := int64(0)
	for i := range list {
		if lim := &list[i].counter.limit; !lim.Observe && len(lim.Lapses()) > 0 {
			lapsing, horizon = append(lapsing, &list[i]), max(horizon, lim.Horizon())
		}
	}
	for at := no.at; len(lapsing) > 0 && at-no.at <= horizon; {
		next := limit.Never
		all := true
		for _, t := range lapsing {
			c := t.counter
			held, heldBy := l.held(c)
			used, shares := c.usedAt(at, l.now)
			room := c.limit.Bound(0, false) - t.amount - held
			all = all && used+kept(c.limit.InForce(at), shares, heldBy, t.share) <= room
			for i := range c.limit.Shares {
				if lapses, ok := c.limit.LapsesAt(i, at); ok && lapses > at {
					next = min(next, lapses)
				}
			}
			_, until := c.limit.Window.Span(at)
			next = min(next, until)
		}
		if all {
			no.at = at
			no.soonest = max(no.soonest, min(no.at, no.soonest))
			return
		}
		at = next
	}
}

// holds reports whether something of a job's pass is held, and takes it if it fits.
func (l *ledger) takeHold(q *ask, now int64, scratch *[]taken) (*hold, *refused) {
	if no := l.decide(q, now, scratch); no != nil {
		return nil, no
	}
	h := &hold{job: q.job, Hold: driver.Hold{Span: q.span, Left: slices.Clone(q.needs)}}
	l.holds = append(l.holds, h)
	for i := range *scratch {
		c := (*scratch)[i].counter
		held, _ := l.held(c)
		c.note(now, held)
	}
	return h, nil
}

// endHold gives back what is left of a hold, and reports whether that is anything.
func (l *ledger) endHold(h *hold) (left bool) {
	l.holds = slices.DeleteFunc(l.holds, func(other *hold) bool { return other == h })
	return slices.ContainsFunc(h.Left, func(n driver.Need) bool { return n.Units > 0 || n.Calls > 0 })
}
