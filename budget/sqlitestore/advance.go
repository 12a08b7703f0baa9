package sqlitestore

import (
	"fmt"
	"math"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// chunk bounds how many rows one query reads.
const chunk = maxSteps

// adviceDamaged is the advice for a ledger whose parts disagree.
const adviceDamaged = "something other than this program changed the file: end all processes that use it and restore it from a backup, or move it away to begin afresh"

// advance brings a window's totals to an instant: it takes out entries that no longer
// count, and counts entries that are not built yet. It reads at most steps rows, and
// counts steps down. done: the totals are right now. If not, they keep the progress.
func (l *ledger) advance(w *window, at int64, steps *int) (done bool, err error) {
	cut := w.cutAt(at)
	if w.next > cut && !w.grows {
		return true, nil
	}
	for lane, t := range w.lanes {
		if t.next <= cut || (t.built != toTheEnd && t.built < cut) {
			if err := l.expire(w, lane, t, cut, steps); err != nil {
				return false, err
			}
		}
		for t.built != toTheEnd && *steps > 0 {
			if err := l.build(w, lane, t, steps); err != nil {
				return false, err
			}
		}
		if t.calls < 0 || (t.calls == 0 && t.units != 0) {
			return false, fmt.Errorf("budget %s: %w: window %s counts entries that do not exist; %s", l.name, driver.ErrDamaged, w.key, adviceDamaged)
		}
	}
	w.next, w.grows = none, false
	for _, t := range w.lanes {
		w.next = min(w.next, t.next)
		w.grows = w.grows || t.built != toTheEnd
	}
	return w.next > cut && !w.grows, nil
}

// expireAdded takes added entries that do not count out of the windows. Everything else is up to
// date, so its steps need no bound.
func (d *decider) expireAdded() error {
	steps := math.MaxInt
	for _, v := range d.limits {
		if v.w == nil {
			continue
		}
		if _, err := d.l.advance(v.w, d.l.last, &steps); err != nil {
			return err
		}
	}
	return nil
}

// expire takes the entries with scores up to cut out of a total.
func (l *ledger) expire(w *window, lane int64, t *total, cut int64, steps *int) error {
	if w.kind != limit.Rolling || (t.built != toTheEnd && t.built <= cut) {
		// Everything counted has expired, except reservations that are still open.
		// Counting these anew reads less than taking the others out.
		w.back(t, t.units, t.calls)
		t.cut, t.built, t.next = cut, cut, none
		return nil
	}
	for more := true; more && *steps > 0; {
		var rows []row
		var err error
		if rows, more, err = l.rows(lane, t.cut, cut, min(*steps, l.few())); err != nil {
			return err
		}
		*steps -= max(1, len(rows))
		for _, r := range rows {
			w.back(t, r.units, r.calls)
			t.cut = r.score
		}
		if !more {
			return l.expired(lane, t, cut)
		}
		sum, found, err := l.leap(lane, t.cut, cut, steps)
		if err != nil {
			return err
		}
		if found {
			w.back(t, sum.units, sum.calls)
			t.cut = sum.score
		}
		t.next = t.cut + 1
	}
	return nil
}

// expired notes that nothing up to cut counts any more, and the next score that does.
func (l *ledger) expired(lane int64, t *total, cut int64) error {
	t.cut, t.next, t.dirty = cut, none, true
	if t.calls == 0 {
		return nil
	}
	_, err := l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ? ORDER BY score LIMIT 1",
		[]any{l.b, lane, cut, t.built}, &t.next)
	return err
}

// build counts more entries into a total that is not built to its end.
func (l *ledger) build(w *window, lane int64, t *total, steps *int) error {
	rows, more, err := l.rowsOf(w, lane, t.built, min(*steps, l.few()))
	if err != nil {
		return err
	}
	*steps -= max(1, len(rows))
	for _, r := range rows {
		w.add(t, r.units, r.calls)
		t.next = min(t.next, r.score)
		t.built = r.score
	}
	if !more {
		t.built, t.dirty = toTheEnd, true
		return nil
	}
	if w.kind == limit.Concurrent { // a sum is of entries in every state
		return nil
	}
	sum, found, err := l.leap(lane, t.built, toTheEnd, steps)
	if found {
		w.add(t, sum.units, sum.calls)
		t.built = sum.score
	}
	return err
}
