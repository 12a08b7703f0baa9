package sqlitestore

import (
	"fmt"
	"math"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// walk is the progress of the search for the instant at which an item fits a limit. It may
// span several transactions; in between, others write.
type walk struct {
	began   bool
	reached int64   // the last score walked, with all of its entries
	sums    []int64 // of the entries walked, by part
	back    []int64 // what had returned by then, likewise
	passed  []bool  // rolling: of a part not all entries up to reached were walked
	walkNo  int64
	version int64 // the ledger's version after that transaction
	last    int64 // the last instant seen in it
	reset   int64 // the calendar's reset that it assumed
	crossed []int64
	found   bool
	at      int64   // the result, if found
	starts  []int64 // of a divided calendar, if found: see limit.Wait
}

// walkKey is a limit's index, and which of its checks the walk is for.
type walkKey struct {
	limit   int
	divided bool
}

// begin begins a walk anew.
func (w *walk) begin(t *test, reached int64) {
	*w = walk{began: true, reached: reached, sums: make([]int64, t.parts()), passed: make([]bool, t.parts())}
}

// cursor reads the entries of one lane in order.
type cursor struct {
	lane int64
	part int
	rows []row
	more bool
	take int // rows to read next
}

// A walk reads a few rows of each lane at first, then more at once.
const (
	firstRows = 4
	mostRows  = 128
)

// fitsAt is the first instant at which an item that fails the test passes it. done is false
// if the steps ran out; w then has the progress.
func (t *test) fitsAt(w *walk, now int64, steps *int) (at int64, done bool, err error) {
	v := t.v
	if w.found && w.version == v.l.version {
		w.version++ // this transaction's version; the passing of time does not change the answer
		return w.at, true, nil
	}
	switch {
	case v.m != nil:
		w.at = v.limit.Window.Refill.Reaches(v.m.levelAt(now), t.room)
		return w.at, true, nil
	case v.w.kind == limit.CalendarKind:
		w.at, w.found, err = t.fitsAfterReset(w, now, steps)
	default:
		w.at, w.found, err = t.fitsAfterReturn(w, now, steps)
	}
	w.walkNo, w.version, w.last = v.l.walkNo, v.l.version+1, v.l.last
	return w.at, w.found, err
}

// fitsAfterReturn is fitsAt for rolling windows: the return of the first entry, from the
// lowest score up, that frees enough. What returns to a share within its guarantee frees
// nothing and is not walked.
func (t *test) fitsAfterReturn(w *walk, now int64, steps *int) (at int64, done bool, err error) {
	v := t.v
	cut, back := v.w.cutAt(now), t.back()
	// The entries walked remain walked, unless they changed or others may have been added
	// among them: new entries finish after the last instant seen.
	if !w.began || w.walkNo != v.l.walkNo || w.reached < cut || (w.version != v.l.version && w.reached >= w.last) {
		w.begin(t, math.MinInt64)
		w.back = back
	}
	left := t.used(v.w)
	for part := range left {
		w.sums[part] -= back[part] - w.back[part]
		left[part] -= w.sums[part]
		if w.passed[part] && !t.within(part, left[part]) { // it has charged since
			w.begin(t, math.MinInt64)
			left = t.used(v.w)
			break
		}
	}
	w.back = back
	score, done, err := t.merge(w, steps, func(c *cursor) (err error) {
		c.rows, c.more, err = v.l.rowsOf(v.w, c.lane, max(v.w.lanes[c.lane].cut, cut, w.reached), c.take)
		return err
	}, func(a, b int64) bool { return a < b }, func(part int) bool {
		if t.within(part, left[part]) {
			w.passed[part] = true
			return true
		}
		return false
	}, func(part int, amount, _ int64) bool {
		left[part] -= amount
		return t.total(left, t.guarantees) <= t.room
	})
	if err == nil && done && t.total(left, t.guarantees) > t.room {
		err = fmt.Errorf("budget %s: %w: limit %s counts entries that do not exist; %s", v.l.name, driver.ErrDamaged, v.limit.Name, adviceDamaged)
	}
	return v.w.shape.Returns(score), done, err
}

// merge visits the amounts of the entries that the limit counts, in all lanes but those of
// parts to skip, in the order of their scores, until one is enough; its score is the
// result. If the steps run out, it stops between two scores, not done.
func (t *test) merge(w *walk, steps *int, fill func(*cursor) error, before func(a, b int64) bool, skip func(part int) bool, enough func(part int, amount, score int64) bool) (score int64, done bool, err error) {
	cursors, err := t.cursors(skip, fill)
	if err != nil {
		return 0, false, err
	}
	walked := slices.Clone(w.sums)
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
				w.reached = score
				copy(w.sums, walked)
			}
			if *steps <= 0 {
				return 0, false, nil
			}
			score = r.score
		}
		*steps--
		amount := t.v.of(next.rows[0].units, next.rows[0].calls)
		walked[next.part] += amount
		if enough(next.part, amount, score) {
			return score, true, nil
		}
		if skip(next.part) {
			cursors = slices.DeleteFunc(cursors, func(c *cursor) bool { return c.part == next.part })
			continue
		}
		if next.rows = next.rows[1:]; len(next.rows) == 0 && next.more {
			// The rows were of whole scores, so this score is walked.
			if err := t.refill(next, w, score, fill); err != nil {
				return 0, false, err
			}
		}
	}
}

// cursors begins a cursor on every lane that the limit counts, that has entries, and whose
// part is not to be skipped.
func (t *test) cursors(skip func(part int) bool, fill func(*cursor) error) ([]*cursor, error) {
	var list []*cursor
	for lane, total := range t.v.w.lanes {
		if total.calls == 0 || !t.v.sees(lane) {
			continue
		}
		c := &cursor{lane: lane, part: t.part(lane), take: firstRows}
		if skip(c.part) {
			continue
		}
		if err := fill(c); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// refill reads more of a lane, from the score reached.
func (t *test) refill(c *cursor, w *walk, score int64, fill func(*cursor) error) error {
	reached := w.reached
	w.reached = score
	defer func() { w.reached = reached }()
	c.take = min(2*c.take, mostRows)
	return fill(c)
}
