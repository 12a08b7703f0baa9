package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Decide implements driver.Store.
func (s *Store) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished, err := s.finish(ctx, driver.Finishes{Budget: batch.Budget, Now: batch.Now, Items: batch.Finishes})
	if err != nil {
		return driver.Decisions{}, err
	}
	l, when, err := s.bring(ctx, batch.Budget, batch.Now, batch.Limits)
	if err != nil {
		return driver.Decisions{}, err
	}
	l.note(batch.Host)
	l.tables = l.tables.Noted(batch.Table, l.last)
	if l.lost(batch.Mark, batch.Limits, when.now) || len(l.missing(batch.Others, batch.Limits, when.now)) > 0 {
		return driver.Decisions{}, lost(batch.Budget)
	}
	batch.Limits = l.plans.Within(l.last).Of(batch.Limits)
	answer := driver.Decisions{Now: when.clock, Finished: finished}
	for _, item := range batch.Items {
		answer.Items = append(answer.Items, l.decide(batch, item, when))
	}
	answer.Seen, answer.Mark, answer.AtWork = l.last, l.mark(l.last), l.atWork(l.last)
	for _, limit := range batch.Limits {
		answer.Used = append(answer.Used, l.used(limit, l.last))
	}
	return answer, nil
}

// decide decides one item and records it if it fits.
func (l *ledger) decide(batch driver.Batch, item driver.Item, when moment) driver.Decision {
	now, all, limits, observed := l.last, batch.Limits, batch.Limits, ""
	if late(item.Deadline, batch.Now) {
		return driver.Decision{Result: driver.Late, Limit: -1}
	}
	if item.Fence != "" && !item.Recorded && l.locks[item.Fence].until > now {
		return driver.Decision{Result: driver.Fenced, Limit: -1}
	}
	l.living(now)
	if item.IsHold() {
		if d, lives := l.replayed(limits, item); lives && !item.DryRun {
			return d
		}
	} else if e := l.find(item.ID, now); e != nil && !item.DryRun {
		same := e.item.Operation == item.Operation && e.item.Units == item.Units && (e.item.Lease > 0) == (item.Lease > 0)
		if !same {
			return driver.Decision{Result: driver.Conflict, Limit: -1}
		}
		d := l.granted(limits, item, now)
		d.Replayed, d.At, d.First = true, e.start, e.item.Labels
		switch {
		case e.state == settled:
			d.Ended = driver.EndedSettled
		case e.state == released:
			d.Ended = driver.EndedReleased
		case e.state == open && e.score <= now:
			d.Ended = driver.EndedLease
		}
		return d
	}
	if item.Recorded {
		limits = nil
	}
	c := l.claimsAt(item, now)
	for i, limit := range limits {
		if _, covered := c.takes(limit, item); !limit.Observe && item.CheckedBy(limit) && item.NeverFits(limit, covered) {
			return driver.Decision{Result: driver.NeverFits, Limit: i, Remaining: limit.Remaining(l.used(limit, now) + l.held(limit))}
		}
	}
	start := max(now, when.later, l.newest+1)
	if item.IsHold() {
		start = max(now, when.later)
	}
	if !item.Recorded {
		refusal, refused, marked := l.refuses(batch, c, item, start)
		if refused {
			return refusal
		}
		observed = marked
	}
	if item.IsHold() {
		return l.takeHold(limits, item, when, observed)
	}
	for _, lim := range all {
		if lim.Window.Kind == limit.Bucket {
			continue // its level stays below the limit
		}
		if l.used(limit.Limit{Window: lim.Window}, now)+item.Units > limit.MaxUnits {
			return driver.Decision{Result: driver.Overflow, Limit: -1}
		}
	}
	if item.DryRun {
		d := l.granted(limits, item, now)
		d.Observed = observed
		return d
	}
	at := start
	if item.Recorded {
		at = max(now, when.later) - item.Age
	}
	e := &entry{item: item, start: at, score: at + item.Lease, units: item.Units, calls: 1, seen: observed != ""}
	if item.Lease > 0 {
		e.state = open
	}
	if item.Recorded && e.score <= max(l.gone, l.horizon(now)) {
		d := l.granted(all, item, now)
		d.At = at
		return d
	}
	e.score = max(e.score, l.merged+1)
	if l.at(item.ID) != nil { // it is no longer held, and its id is taken from it
		l.prune(now)
	}
	l.entries = append(l.entries, e)
	c.charge()
	l.noteCharge(e, e.units, 1)
	if at > l.newest {
		l.newest, l.newestID = at, item.ID
	}
	l.changes++
	if at == l.last+1 { // the next of several at one instant
		l.last = at
	}
	for _, m := range l.meters {
		m.charge(e, l.last, when.drains())
	}
	d := l.granted(all, item, now)
	d.At, d.Observed = at, observed
	return d
}

// refuses decides whether limits, locks or a loss refuse an item that would be charged at
// start; the name is that of the first limit, or lock, that only observes.
func (l *ledger) refuses(batch driver.Batch, c claims, item driver.Item, start int64) (refusal driver.Decision, refused bool, observed string) {
	now, limits := l.last, batch.Limits
	refusal = driver.Decision{Result: driver.Refused, Limit: -1}
	for i, lim := range limits {
		if !item.CheckedBy(lim) {
			continue
		}
		used, room := l.used(lim, now), c.room(lim, item)
		kept, fits := l.kept(c, lim, item, now, start+item.Lasts())
		if used <= room && fits {
			continue
		}
		if lim.Observe {
			observed = cmp.Or(observed, lim.Name)
			continue
		}
		refused = true
		at := int64(0)
		switch {
		case len(lim.Shares) > 0:
			at = l.sharedFitsAt(c, lim, item, now)
		case room < 0 && lim.Window.Kind != limit.Bucket: // because of holds
			at = limit.Never
		default:
			at = l.fitsAt(lim, now, room)
		}
		if refusal.Limit < 0 || at > refusal.RetryAt {
			refusal.Limit, refusal.RetryAt, refusal.Remaining, refusal.Kept = i, at, lim.Remaining(used+c.held(lim)), kept
		}
	}
	observed = cmp.Or(l.askLocks(batch, item, &refusal, &refused), observed)
	observed = cmp.Or(l.askRecovery(batch, &refusal, &refused), observed)
	if !refused {
		return refusal, false, observed
	}
	if refusal.RetryAt < limit.Never {
		refusal = l.together(c, limits, item, refusal)
	}
	if len(c.holds) == 0 {
		return refusal.UnlessPlanned(limits, item, now), true, observed
	}
	if refusal.Result == driver.NeverFits { // unless a hold ends
		refusal.Result, refusal.RetryAt = driver.Refused, limit.Never
	}
	first := slices.MinFunc(c.holds, func(a, b *hold) int { return cmp.Compare(a.until, b.until) }).until
	if refusal.RetryAt < first {
		return refusal, true, observed
	}
	switch at := l.fitsFrom(first, batch, item, now); at {
	case limit.Never:
		if refusal.RetryAt = limit.Never; refusal.UnlessPlanned(limits, item, now).RetryAt < limit.Never {
			return refusal.UnlessPlanned(limits, item, now), true, observed
		}
		first := item.FirstWithLapses(limits, now)
		refusal = driver.Decision{Result: driver.NeverFits, Limit: first, Remaining: limits[first].Remaining(l.used(limits[first], now) + c.held(limits[first]))}
	case refusal.RetryAt:
	default:
		refusal.RetryAt, refusal.Ends = at, 0
	}
	return refusal, true, observed
}

// late reports whether the deadline has passed, on the caller's clock.
func late(deadline time.Time, caller int64) bool {
	return !deadline.IsZero() && deadline.UnixMicro() < caller
}

// granted is the decision on a granted item: which limit has the least left, and how
// much.
func (l *ledger) granted(limits []limit.Limit, item driver.Item, now int64) driver.Decision {
	d := driver.Decision{Result: driver.Granted, Units: item.Units, Limit: -1}
	for _, counts := range []limit.Counts{limit.CountUnits, limit.CountCalls} {
		for i, lim := range limits {
			if (lim.Counts == limit.CountCalls) != (counts == limit.CountCalls) || !item.CheckedBy(lim) {
				continue
			}
			if left := lim.Remaining(l.used(lim, now) + l.held(lim)); d.Limit < 0 || left < d.Remaining {
				d.Limit, d.Remaining = i, left
			}
		}
		if d.Limit >= 0 {
			break
		}
	}
	return d
}

// maxSum is the largest total a settle upwards may lead to.
const maxSum = 9 * limit.MaxUnits

// Finish implements driver.Store.
func (s *Store) Finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finish(ctx, finishes)
}

// finish settles and releases reservations; s.mu is held.
func (s *Store) finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	l, when, err := s.enter(ctx, finishes.Budget, finishes.Now)
	if err != nil {
		return nil, err
	}
	var all []driver.Finished
	for _, f := range finishes.Items {
		answer := driver.Finished{Result: driver.FinishLate, Now: when.clock}
		if !late(f.Deadline, finishes.Now) {
			answer = l.finishOne(f, when)
		}
		all = append(all, answer)
	}
	return all, nil
}

// finishOne settles or releases one reservation.
func (l *ledger) finishOne(f driver.Finish, when moment) driver.Finished {
	now := when.now
	answer := driver.Finished{Now: when.clock}
	l.last = now
	l.living(now)
	e := l.find(f.ID, now)
	if e == nil {
		answer.Result = driver.FinishExpired
		return answer
	}
	answer.At = e.score
	switch {
	case e.state == plain:
		answer.Result = driver.FinishConflict
	case e.state == settled && !f.Release && e.units == f.Units:
		answer.Result, answer.Replayed = driver.Settled, true
	case e.state == released && f.Release:
		answer.Result, answer.Replayed = driver.Released, true
	case e.state != open:
		answer.Result = driver.FinishConflict
	case f.Release && now-f.Age >= e.score:
		answer.Result = driver.FinishExpired
	case f.Release:
		for _, m := range l.meters {
			m.finish(e, 0, true, now, when.drains())
		}
		l.noteEnd(e, -e.units, -1)
		l.finishDraw(e.item.ID, e.units, 0, true)
		e.state, e.units, e.score = released, 0, l.ended(e, max(now, when.later)-f.Age)
		answer.Result, answer.At = driver.Released, e.score
		l.changes++
	default:
		sum := f.Units - e.units
		for _, other := range l.entries {
			sum += other.units
		}
		over := sum > maxSum
		for _, m := range l.meters {
			over = over || m.over(e, f.Units, now)
		}
		if over {
			answer.Result = driver.FinishOverflow
			return answer
		}
		for _, m := range l.meters {
			m.finish(e, f.Units, false, now, when.drains())
		}
		l.noteEnd(e, f.Units-e.units, 0)
		l.finishDraw(e.item.ID, e.units, f.Units, false)
		e.state, e.units, e.score = settled, f.Units, l.ended(e, max(now, when.later)-f.Age)
		answer.Result, answer.At = driver.Settled, e.score
		l.changes++
	}
	return answer
}

// ended is the instant to record for a reservation that is reported to have ended at at:
// within its lease, and later than what is forgotten or merged.
func (l *ledger) ended(e *entry, at int64) int64 {
	return min(e.score, max(at, e.start, l.earliest(l.last)))
}

// Look implements driver.Store.
func (s *Store) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.enter(ctx, look.Budget, look.Now)
	if err != nil {
		return driver.View{}, err
	}
	now := when.now
	if s.ledgers[look.Budget] == nil { // and Look creates none
		l.id = ""
	}
	if l.lost(look.Mark, look.Limits, now) {
		return driver.View{}, lost(look.Budget)
	}
	view := driver.View{Now: when.clock, Locks: l.standing(now), Mark: l.mark(now), AtWork: l.atWork(now), Tables: l.tables.Within(now), Plans: l.plans.Within(now), Missing: l.missing(look.Others, look.Limits, now), Entries: int64(len(l.entries))}
	if until := l.recovering(look.Hosts); until > now {
		view.Recovering = until
	}
	for _, h := range l.claimsAt(driver.Item{}, now).holds {
		view.Holds = append(view.Holds, h.view())
	}
	for _, lim := range look.Limits {
		v := driver.LimitView{Used: l.used(lim, now), Recovered: l.pseudo(lim, limit.RecoveredOperation(lim.Name), now), Drift: l.pseudo(lim, limit.DriftOperation(lim.Name), now)}
		if v.Used > 0 {
			v.NextAt = l.fitsAt(lim, now, v.Used-1)
			v.NextAmount = v.Used - l.used(lim, v.NextAt)
		}
		if lim.Window.Kind == limit.Bucket {
			view.Limits = append(view.Limits, v)
			continue
		}
		if floor := l.floor(lim); floor > lim.Window.Cut(now) && l.born > 0 && l.born <= floor {
			v.Since = floor + 1
		}
		v.Shares = l.shared(lim, now)
		view.Limits = append(view.Limits, v)
	}
	return view, nil
}
