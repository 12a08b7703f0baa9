package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// shared is what each share of a limit has used at an instant.
func (l *ledger) shared(lim limit.Limit, at int64) []int64 {
	used := make([]int64, len(lim.Shares))
	if len(used) == 0 {
		return nil
	}
	cut := max(lim.Window.Cut(at), l.floor(lim))
	for _, e := range l.entries {
		if i := lim.ShareOf(e.job()); i >= 0 && e.score > cut && e.counts(lim) {
			used[i] += e.amount(lim)
		}
	}
	return used
}

// job is the label by which the entry belongs to a share. Charges of a pseudo-operation
// belong to none.
func (e *entry) job() string {
	if e.row {
		return ""
	}
	return e.item.Labels.Job
}

// next is a calendar limit as it will count after its next reset.
func next(lim limit.Limit) limit.Limit {
	lim.Window = lim.Window.AfterReset()
	return lim
}

// kept is, for each share of the limit, what an item that would finish at score may not
// take at an instant because it is guaranteed to that share.
func (l *ledger) kept(c claims, lim limit.Limit, item driver.Item, at, score int64) (kept []int64, fits bool) {
	if len(lim.Shares) == 0 {
		return nil, true
	}
	amount, covered := c.takes(lim, item)
	own, room, held := lim.ShareOf(item.Labels.Job), lim.Bound(0, item.UseHeadroom)-amount-c.held(lim), c.sharedHeld(lim)
	kept, sum := keptFor(lim.InForce(at), l.shared(lim, at), held, own)
	if covered {
		return kept, true
	}
	if l.used(lim, at)+sum > room {
		return kept, false
	}
	if after := next(lim); lim.Window.Kind == limit.CalendarKind && score > after.Window.Cut(at) {
		later, sum := keptFor(lim.Guarantees(), l.shared(after, at), held, own)
		if l.used(after, at)+sum > room {
			return later, false
		}
	}
	return kept, true
}

func keptFor(guarantees, used, held []int64, own int) (kept []int64, sum int64) {
	kept = make([]int64, len(guarantees))
	for i := range guarantees {
		if i != own {
			kept[i] = max(0, guarantees[i]-used[i]-held[i])
			sum += kept[i]
		}
	}
	return kept, sum
}

// fits reports whether the item fits the limit at an instant, in which a plain charge
// would finish at that instant.
func (l *ledger) fits(c claims, lim limit.Limit, item driver.Item, at int64) bool {
	if l.used(lim, at) > c.room(lim, item) {
		return false
	}
	_, fits := l.kept(c, lim, item, at, at+item.Lasts())
	return fits
}

// sharedFitsAt is the first instant after now at which an item fits a divided limit if
// nothing else happens: it tries every instant at which units return or a guarantee
// lapses.
func (l *ledger) sharedFitsAt(c claims, lim limit.Limit, item driver.Item, now int64) int64 {
	if lim.Window.Kind == limit.CalendarKind {
		return l.calendarFitsAt(c, lim, item, now)
	}
	cut := max(lim.Window.Cut(now), l.floor(lim))
	var returns []int64
	for _, e := range l.entries {
		if e.score > cut && e.counts(lim) {
			returns = append(returns, lim.Window.Returns(e.score))
		}
	}
	slices.Sort(returns)
	returns = slices.Compact(returns)
	if lim.ByRecords() { // what is guaranteed changes until then
		return l.plannedFitsAt(c, lim, item, returns, now)
	}
	first, _ := slices.BinarySearchFunc(returns, true, func(at int64, _ bool) int { // use only falls
		if l.fits(c, lim, item, at) {
			return 0
		}
		return -1
	})
	if first == len(returns) {
		return limit.Never // because of holds
	}
	return returns[first]
}

// plannedFitsAt is sharedFitsAt for a rolling limit with records: it tries the
// returns, and the records' ends.
func (l *ledger) plannedFitsAt(c claims, lim limit.Limit, item driver.Item, returns []int64, now int64) int64 {
	tries := append(planEnds(lim, now), returns...)
	slices.Sort(tries)
	if i := slices.IndexFunc(tries, func(at int64) bool { return l.fits(c, lim, item, at) }); i >= 0 {
		return tries[i]
	}
	return limit.Never // because of holds
}

// planEnds are the ends of a limit's records after an instant.
func planEnds(lim limit.Limit, after int64) (ends []int64) {
	for _, s := range lim.Shares {
		for _, p := range s.Planned {
			if p.Until > after {
				ends = append(ends, p.Until)
			}
		}
	}
	return ends
}

// changePlan implements driver.PlanChange.
func (s *Store) changePlan(ctx context.Context, c driver.PlanChange) (driver.Planned, error) {
	l, when, err := s.begin(ctx, c.Budget, c.Now)
	if err != nil {
		return driver.Planned{}, err
	}
	plans, err := l.plans.With(c, when.now)
	if err != nil {
		return driver.Planned{}, err
	}
	l.plans = plans
	return driver.Planned{Now: when.clock}, nil
}

// calendarFitsAt is sharedFitsAt for a calendar: it tries the lapses of each period, and
// its end.
func (l *ledger) calendarFitsAt(c claims, lim limit.Limit, item driver.Item, now int64) int64 {
	for from := now; from-now <= lim.Horizon(); {
		_, until := lim.Window.Span(from)
		tries := []int64{until}
		for _, at := range planEnds(lim, from) {
			if at < until {
				tries = append(tries, at)
			}
		}
		for _, s := range lim.Shares {
			if at := until - lim.Window.Guard - s.Lapse; s.Lapse > 0 && at > from {
				tries = append(tries, at)
			}
		}
		slices.SortFunc(tries, func(a, b int64) int { return cmp.Compare(a, b) })
		for _, at := range tries {
			if l.fits(c, lim, item, at) {
				return at
			}
		}
		from = until
	}
	return limit.Never // because of holds
}

// together puts a refusal off until the item fits all limits at one instant: it tries every
// instant from then on at which a guarantee lapses or comes back.
func (l *ledger) together(c claims, limits []limit.Limit, item driver.Item, refusal driver.Decision) driver.Decision {
	var lapsing []limit.Limit
	horizon := int64(0)
	for _, lim := range limits {
		if item.WaitsForLapses(lim) {
			lapsing = append(lapsing, lim)
			horizon = max(horizon, lim.Horizon())
		}
	}
	for at := refusal.RetryAt; len(lapsing) > 0; {
		if !slices.ContainsFunc(lapsing, func(lim limit.Limit) bool { return !l.fits(c, lim, item, at) }) {
			if at > refusal.RetryAt {
				refusal.Ends, refusal.RetryAt = refusal.RetryAt, at
			}
			return refusal
		}
		next := limit.Never
		for _, lim := range lapsing {
			for i := range lim.Shares {
				if lapses, ok := lim.LapsesAt(i, at); ok && lapses > at {
					next = min(next, lapses)
				}
			}
			next = min(next, l.nextReturn(lim, at))
			for _, end := range planEnds(lim, at) {
				next = min(next, end)
			}
		}
		if at = next; at-refusal.RetryAt > horizon {
			first := item.FirstWithLapses(limits, l.last)
			return driver.Decision{Result: driver.NeverFits, Limit: first, Remaining: limits[first].Remaining(l.used(limits[first], l.last) + c.held(limits[first]))}
		}
	}
	return refusal
}

// nextReturn is the first instant after one at which units return to a limit: a calendar's
// reset.
func (l *ledger) nextReturn(lim limit.Limit, after int64) int64 {
	if lim.Window.Kind == limit.CalendarKind {
		_, until := lim.Window.Span(after)
		return until
	}
	next := limit.Never
	for _, e := range l.entries {
		if at := lim.Window.Returns(e.score); at > after && e.counts(lim) {
			next = min(next, at)
		}
	}
	return next
}
