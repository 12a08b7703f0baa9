package sqlitestore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// refuse finds what refuses the item the longest: a limit, a lock or a loss. If nothing
// does, the result is Granted, and Observed names what would have refused it but for
// observe mode.
func (d *decider) refuse(item driver.Item, now int64) (refusal driver.Decision, done bool, err error) {
	refusal = driver.Decision{Result: driver.Granted, Limit: -1}
	observed := ""
	lives := d.l.holds.living(item, now)
	var waits []limit.Wait
	for i, v := range d.limits {
		if !item.CheckedBy(v.limit) {
			continue
		}
		at := now
		failed, kept := d.tests(v, item, &lives, now)
		if len(failed) == 0 {
			continue
		}
		if v.limit.Observe {
			observed = cmp.Or(observed, v.limit.Name)
			continue
		}
		own := len(waits)
		for _, t := range failed {
			w, done, err := d.wait(i, t, now, true)
			if err != nil || !done {
				return refusal, false, err
			}
			at = max(at, w.From(now))
			waits = append(waits, w)
		}
		if len(failed) > 1 && v.limit.ByRecords() {
			at = limit.FitsTogether(waits[own:], now)
		}
		if refusal.Limit < 0 || at > refusal.RetryAt {
			refusal = driver.Decision{Result: driver.Refused, Limit: i, RetryAt: at, Remaining: d.remaining(i), Kept: kept}
		}
	}
	observed = cmp.Or(d.askLocks(item, now, &refusal), observed)
	observed = cmp.Or(d.l.loss.refuse(d.batch, now, &refusal), observed)
	if refusal.Result == driver.Granted {
		refusal.Observed = observed
		return refusal, true, nil
	}
	for i, v := range d.limits {
		if !v.waitsForLapses(item, &lives) || slices.ContainsFunc(waits, func(w limit.Wait) bool { return w.Limit.Name == v.limit.Name }) {
			continue
		}
		t := v.dividedBy(item, &lives, now)
		w, done, err := d.wait(i, t, now, false)
		if err != nil || !done {
			return refusal, false, err
		}
		waits = append(waits, w)
	}
	if len(lives.holds) > 0 {
		return d.asHoldsEnd(item, refusal, waits, now)
	}
	return refusal.Together(d.batch.Limits, item, waits, now, d.remaining).UnlessPlanned(d.batch.Limits, item, now), true, nil
}

// asHoldsEnd is the refusal by what would bind if no hold ever ended, with the first instant
// at which the item fits as they end with their leases. It looks for that in the span from
// each end to the next one, in which the holds are the same. waits are as if none ended.
func (d *decider) asHoldsEnd(item driver.Item, refusal driver.Decision, waits []limit.Wait, now int64) (decision driver.Decision, done bool, err error) {
	var ends []int64
	for _, h := range d.l.holds.list {
		ends = append(ends, h.Until)
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	if refusal.RetryAt < limit.Never {
		refusal = refusal.Together(d.batch.Limits, item, waits, now, d.remaining)
	}
	if refusal.Result == driver.NeverFits { // unless a hold ends
		refusal.Result, refusal.RetryAt = driver.Refused, limit.Never
	}
	if refusal.RetryAt < ends[0] {
		return refusal, true, nil
	}
	for i, from := range ends {
		at, done, err := d.fitsFrom(item, from, now)
		switch {
		case err != nil || !done:
			return refusal, false, err
		case at == limit.Never, i+1 < len(ends) && at >= ends[i+1]:
			continue
		case at != refusal.RetryAt:
			refusal.RetryAt, refusal.Ends = at, 0
		}
		return refusal, true, nil
	}
	refusal.RetryAt = limit.Never
	if later := refusal.UnlessPlanned(d.batch.Limits, item, now); later.RetryAt < limit.Never {
		return later, true, nil
	}
	never := driver.Decision{Result: driver.NeverFits, Limit: -1}
	if never.Limit = item.FirstWithLapses(d.batch.Limits, now); never.Limit >= 0 {
		never.Remaining = d.remaining(never.Limit)
	}
	return never, true, nil
}

// fitsFrom is the first instant, from one on, at which a refused item fits everything, if no
// hold ends after that one; limit.Never if there is none.
func (d *decider) fitsFrom(item driver.Item, from, now int64) (at int64, done bool, err error) {
	lives := d.l.holds.living(item, from)
	var waits []limit.Wait
	for i, v := range d.limits {
		if v.limit.Observe || !item.CheckedBy(v.limit) {
			continue
		}
		tests, _ := d.tests(v, item, &lives, now)
		if len(tests) == 0 && v.waitsForLapses(item, &lives) {
			tests = []*test{v.dividedBy(item, &lives, now)}
		}
		for _, t := range tests {
			w, done, err := d.wait(i, t, now, false)
			if err != nil || !done {
				return 0, false, err
			}
			waits = append(waits, w)
		}
	}
	closed := driver.Decision{Result: driver.Granted}
	d.askLocks(item, now, &closed)
	d.l.loss.refuse(d.batch, now, &closed)
	at = max(from, closed.RetryAt)
	for _, w := range waits {
		if at = w.From(at); at == limit.Never {
			return at, true, nil
		}
	}
	return limit.FitsTogether(waits, at), true, nil
}

// waitsForLapses reports whether the item's wait must look at the limit even if that does not
// refuse it.
func (v *counting) waitsForLapses(item driver.Item, lives *living) bool {
	if !item.WaitsForLapses(v.limit) {
		return false
	}
	_, drawn := lives.amount(v.limit, item)
	return !drawn
}

// wait is how an item waits to pass a test of a limit.
func (d *decider) wait(i int, t *test, now int64, refused bool) (w limit.Wait, done bool, err error) {
	if !t.divided || t.v.w.kind == limit.CalendarKind || !t.v.limit.ByRecords() {
		found, done, err := d.walk(i, t, now, 0)
		if err != nil || !done {
			return w, false, err
		}
		return t.wait(found, now, refused), true, nil
	}
	w = limit.Wait{Limit: t.v.limit, Now: now, Refused: refused, Lease: t.lease}
	under := func(guarantees []int64, spell int) (at int64, done bool, err error) {
		one := *t
		one.guarantees = t.byPart(guarantees)
		if one.total(one.used(one.v.w), one.guarantees) <= one.room {
			return now, true, nil
		}
		found, done, err := d.walk(i, &one, now, spell)
		return found.fits, done, err
	}
	if w.At, done, err = under(t.v.limit.Guarantees(), 0); err != nil || !done {
		return w, false, err
	}
	for k, spell := range t.v.limit.Spells() {
		s := limit.SpellWait{Until: spell.Until}
		if s.Until > now {
			if s.Start, done, err = under(spell.Guarantees, k+1); err != nil || !done {
				return w, false, err
			}
		}
		w.Spells = append(w.Spells, s)
	}
	return w, true, nil
}

// walk goes on with the walk to the instant at which the item passes a test of a limit, in a
// spell (from 1) or after all.
func (d *decider) walk(i int, t *test, now int64, spell int) (w *walk, done bool, err error) {
	key := walkKey{limit: i, divided: t.divided, room: t.room, spell: spell}
	if limit := t.v.limit; t.divided && limit.ByRecords() {
		for _, share := range limit.Shares {
			key.records += fmt.Sprint(share.Planned)
		}
	}
	if t.held != nil {
		key.held = fmt.Sprint(t.held)
	}
	if d.walks[key] == nil {
		d.walks[key] = &walk{}
	}
	w = d.walks[key]
	_, done, err = t.fitsAt(w, now, &d.steps)
	return w, done, err
}

// tests are the checks of a limit that the item fails, by which waits count, and what is
// kept for each of its shares. In a divided calendar one wait passes both checks, because
// use under guarantees does not only fall. What only draws from a hold has one check.
func (d *decider) tests(v *counting, item driver.Item, lives *living, now int64) (failed []*test, kept []int64) {
	plain, drawn := v.plain(item, lives)
	fits := v.used()+plain.sumHeld() <= plain.room
	if len(v.limit.Shares) == 0 {
		if fits {
			return nil, nil
		}
		return []*test{plain}, nil
	}
	divided := v.dividedBy(item, lives, now)
	at := max(now, d.when.later)
	if !item.IsHold() {
		at = max(at, d.l.newest+1)
	}
	kept, within := divided.check(at + item.Lasts())
	switch {
	case fits && (within || drawn):
		return nil, nil
	case drawn:
		return []*test{plain}, divided.kept(divided.used(v.w), divided.guarantees)
	case v.w.kind == limit.CalendarKind:
		return []*test{divided}, kept
	case fits:
		return []*test{divided}, kept
	case within && !v.limit.ByRecords(): // else it may not be within for long
		return []*test{plain}, kept
	}
	return []*test{divided, plain}, kept
}
