package sqlitestore

import (
	"fmt"
	"math"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// walk is the progress of the search for the instant at which an item fits a limit. It may
// span several transactions; in between, others write.
type walk struct {
	began   bool
	reached int64 // the last score walked, with all of its entries
	sum     int64 // of the entries walked
	back    int64 // what had returned by then
	walkNo  int64
	version int64 // the ledger's version after that transaction
	last    int64 // the last instant seen in it
	reset   int64 // the calendar's reset that it assumed
	found   bool
	at      int64 // the result, if found
}

// cursor reads the entries of one lane in order.
type cursor struct {
	lane int64
	rows []row
	more bool
	take int // rows to read next
}

// A walk reads a few rows of each lane at first, then more at once.
const (
	firstRows = 4
	mostRows  = 128
)

// fitsAt is the first instant at which the use of a limit, now above room, falls to room.
// done is false if the steps ran out; w then has the progress.
func (v *counting) fitsAt(w *walk, now, room int64, steps *int) (at int64, done bool, err error) {
	if w.found && w.version == v.l.version {
		w.version++ // this transaction's version; the passing of time does not change the answer
		return w.at, true, nil
	}
	switch {
	case v.m != nil:
		return v.limit.Window.Refill.Reaches(v.m.levelAt(now), room), true, nil
	case v.w.kind == limit.CalendarKind:
		w.at, w.found, err = v.fitsAfterReset(w, now, room, steps)
	default:
		w.at, w.found, err = v.fitsAfterReturn(w, now, room, steps)
	}
	w.walkNo, w.version, w.last = v.l.walkNo, v.l.version+1, v.l.last
	return w.at, w.found, err
}

// fitsAfterReturn is fitsAt for rolling windows: the return of the first entry,
// from the lowest score up, that frees enough.
func (v *counting) fitsAfterReturn(w *walk, now, room int64, steps *int) (at int64, done bool, err error) {
	cut := v.w.cutAt(now)
	// The entries walked remain walked, unless they changed or others may have been added
	// among them: new entries finish after the last instant seen.
	if !w.began || w.walkNo != v.l.walkNo || w.reached < cut || (w.version != v.l.version && w.reached >= w.last) {
		*w = walk{began: true, reached: math.MinInt64, back: v.back()}
	}
	w.sum -= v.back() - w.back
	w.back = v.back()
	left := v.used() - w.sum
	score, done, err := v.merge(w, steps, func(c *cursor) (err error) {
		c.rows, c.more, err = v.l.rowsOf(v.w, c.lane, max(v.w.lanes[c.lane].cut, cut, w.reached), c.take)
		return err
	}, func(a, b int64) bool { return a < b }, func(amount int64) bool { left -= amount; return left <= room })
	if err == nil && done && left > room {
		err = fmt.Errorf("budget %s: %w: limit %s counts entries that do not exist; %s", v.l.name, driver.ErrDamaged, v.limit.Name, adviceDamaged)
	}
	return v.w.shape.Returns(score), done, err
}

// fitsAfterReset is fitsAt for calendars: the first reset after which the entries that
// still count come to room or less. Only entries beyond the cut can count after the next
// reset: open reservations, and those that the guard counts twice. It walks these from the
// highest score down.
func (v *counting) fitsAfterReset(w *walk, now, room int64, steps *int) (at int64, done bool, err error) {
	v.w.cutAt(now)
	reset := v.w.end
	lowest := v.w.shape.Cut(reset) + 1
	if !w.began || w.version != v.l.version || w.reset != reset {
		*w = walk{began: true, reached: math.MaxInt64, reset: reset}
	}
	sum := w.sum
	score, done, err := v.merge(w, steps, func(c *cursor) (err error) {
		c.rows, c.more, err = v.l.rowsDown(c.lane, w.reached, lowest, c.take)
		return err
	}, func(a, b int64) bool { return a > b }, func(amount int64) bool { sum += amount; return sum > room })
	if sum > room {
		return v.w.shape.Returns(score), done, err
	}
	return reset, done, err
}

// merge visits the amounts of the entries that the limit counts, in all lanes, in the order
// of their scores, until one is enough; its score is the result. If the steps run out, it
// stops between two scores, not done.
func (v *counting) merge(w *walk, steps *int, fill func(*cursor) error, before func(a, b int64) bool, enough func(int64) bool) (score int64, done bool, err error) {
	cursors, err := v.cursors(fill)
	if err != nil {
		return 0, false, err
	}
	walked := w.sum
	for first := true; ; first = false {
		var next *cursor
		for _, c := range cursors {
			if len(c.rows) > 0 && (next == nil || before(c.rows[0].score, next.rows[0].score)) {
				next = c
			}
		}
		if next == nil {
			return score, true, nil
		}
		if r := next.rows[0]; first || r.score != score {
			if !first {
				w.reached, w.sum = score, walked
			}
			if *steps <= 0 {
				return 0, false, nil
			}
			score = r.score
		}
		*steps--
		amount := v.of(next.rows[0].units, next.rows[0].calls)
		walked += amount
		if enough(amount) {
			return score, true, nil
		}
		if next.rows = next.rows[1:]; len(next.rows) == 0 && next.more {
			// The rows were of whole scores, so this score is walked.
			if err := v.refill(next, w, score, fill); err != nil {
				return 0, false, err
			}
		}
	}
}

// cursors begins a cursor on every lane that the limit counts and that has entries.
func (v *counting) cursors(fill func(*cursor) error) ([]*cursor, error) {
	var list []*cursor
	for lane, t := range v.w.lanes {
		if t.calls == 0 || !v.sees(lane) {
			continue
		}
		c := &cursor{lane: lane, take: firstRows}
		if err := fill(c); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// refill reads more of a lane, from the score reached.
func (v *counting) refill(c *cursor, w *walk, score int64, fill func(*cursor) error) error {
	reached := w.reached
	w.reached = score
	defer func() { w.reached = reached }()
	c.take = min(2*c.take, mostRows)
	return fill(c)
}
