package sqlitestore

import (
	"container/heap"
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
	at      []int64 // by part: the last score walked, with all of its entries
	sums    []int64 // of the entries walked, likewise
	back    []int64 // what had returned by then, likewise
	walkNo  int64
	version int64 // the ledger's version after that transaction
	last    int64 // the last instant seen in it
	reset   int64 // the calendar's reset that it assumed
	crossed []int64
	found   bool
	fits    int64   // the result, if found
	starts  []int64 // of a divided calendar, if found: see limit.Wait
	spells  []limit.SpellWait
}

// walkKey is a limit's index, and which of its checks the walk is for: an item has a further
// one for what is held after each end of a hold.
type walkKey struct {
	limit   int
	divided bool
	room    int64
	held    string
	spell   int // of a rolling limit with records, from 1
	// records are those of shares that lapse by plan: others may be written between two
	// transactions of a walk, which changes no version.
	records string
}

// begin begins a walk anew, from a score.
func (w *walk) begin(t *test, from int64) {
	*w = walk{began: true, at: slices.Repeat([]int64{from}, t.parts()), sums: make([]int64, t.parts()), back: make([]int64, t.parts())}
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
	after := v.l.version + 1 // this transaction's version
	if w.found && (w.version == v.l.version || w.version == after) {
		w.version = after // the passing of time does not change the answer
		return w.fits, true, nil
	}
	switch {
	case t.neverFits() && v.w.kind != limit.CalendarKind:
		w.fits = limit.Never
		return w.fits, true, nil
	case v.m != nil:
		w.fits = v.limit.Window.Refill.Reaches(v.m.levelAt(now), t.room)
		return w.fits, true, nil
	case v.w.kind == limit.CalendarKind:
		w.fits, w.found, err = t.fitsAfterReset(w, now, steps)
	default:
		w.fits, w.found, err = t.fitsAfterReturn(w, now, steps)
	}
	w.walkNo, w.version, w.last = v.l.walkNo, after, v.l.last
	return w.fits, w.found, err
}

// fitsAfterReturn is fitsAt for rolling windows: the return of the first entry, from the
// lowest score up, that frees enough. What returns to a share within its guarantee frees
// nothing, and is not walked until the share has charged more than that.
func (t *test) fitsAfterReturn(w *walk, now int64, steps *int) (at int64, done bool, err error) {
	v := t.v
	cut, back := v.w.cutAt(now), t.back()
	// The entries walked remain walked, unless they changed or others may have been added
	// among them: new entries finish after the last instant seen.
	if !w.began || w.walkNo != v.l.walkNo || w.version != v.l.version && slices.Max(w.at) >= w.last {
		w.begin(t, math.MinInt64)
	}
	left := t.used(v.w)
	for part := range left {
		w.sums[part] -= back[part] - w.back[part]
		if w.at[part] <= cut { // all of that has returned
			w.at[part], w.sums[part] = math.MinInt64, 0
		}
		left[part] -= w.sums[part]
	}
	w.back = back
	score := int64(0)
	walk := func(steps *int) (int64, bool, error) {
		return t.merge(w, steps, func(c *cursor, from int64) (err error) {
			c.rows, c.more, err = v.l.rowsOf(v.w, c.lane, max(v.w.lanes[c.lane].cut, cut, from), c.take)
			return err
		}, func(a, b int64) bool { return a < b }, func(part int) bool {
			return t.within(part, left[part])
		}, func(part int, amount, _ int64) bool {
			left[part] -= amount
			return t.total(left, t.guarantees) <= t.room
		})
	}
	few := min(*steps, v.l.few())
	*steps -= few
	score, done, err = walk(&few)
	*steps += few
	if err == nil && !done {
		err = t.skim(w, left, cut, steps)
	}
	if err == nil && !done {
		score, done, err = walk(steps)
	}
	if err == nil && done && t.total(left, t.guarantees) > t.room {
		err = fmt.Errorf("budget %s: %w: limit %s counts entries that do not exist; %s", v.l.name, driver.ErrDamaged, v.limit.Name, adviceDamaged)
	}
	return v.w.shape.Returns(score), done, err
}

// merge visits the amounts of the entries that the limit counts, in the order of their
// scores, until one is enough; its score is the result. It reads no part that is to be
// skipped when a score begins. If the steps run out, it stops between two scores, not done.
func (t *test) merge(w *walk, steps *int, fill func(c *cursor, from int64) error, before func(a, b int64) bool, skip func(part int) bool, enough func(part int, amount, score int64) bool) (score int64, done bool, err error) {
	if *steps <= 0 {
		return 0, false, nil
	}
	skipped := make([]bool, len(w.at))
	for part := range skipped {
		skipped[part] = skip(part)
	}
	cursors := &cursorHeap{before: before}
	for lane, total := range t.v.w.lanes {
		if part := t.part(lane); total.calls > 0 && t.v.sees(lane) && !skipped[part] {
			c := &cursor{lane: lane, part: part, take: firstRows}
			if err := fill(c, w.at[part]); err != nil {
				return 0, false, err
			}
			*steps-- // opening costs more than a row
			if len(c.rows) > 0 {
				cursors.list = append(cursors.list, c)
			}
		}
	}
	heap.Init(cursors)
	walked := slices.Clone(w.sums)
	for began := false; ; {
		if len(cursors.list) == 0 {
			return score, true, nil
		}
		next := cursors.list[0]
		if !began && skipped[next.part] {
			heap.Pop(cursors)
			continue
		}
		r := next.rows[0]
		if began && r.score != score { // all entries of the score are walked
			copy(w.sums, walked)
			for part := range w.at {
				if !skipped[part] && before(w.at[part], score) {
					w.at[part] = score
				}
				skipped[part] = skipped[part] || skip(part)
			}
			if *steps <= 0 {
				return 0, false, nil
			}
			began = false
			continue // the next may be of a part to skip
		}
		began, score = true, r.score
		*steps--
		amount := t.v.of(r.units, r.calls)
		walked[next.part] += amount
		if enough(next.part, amount, score) {
			return score, true, nil
		}
		if next.rows = next.rows[1:]; len(next.rows) == 0 && next.more {
			next.take = min(2*next.take, mostRows)
			if err := fill(next, score); err != nil { // the rows were of whole scores, so this one is walked
				return 0, false, err
			}
		}
		if len(next.rows) == 0 {
			heap.Pop(cursors)
		} else {
			heap.Fix(cursors, 0)
		}
	}
}

// cursorHeap has the cursor with the first score on top.
type cursorHeap struct {
	list   []*cursor
	before func(a, b int64) bool
}

func (h *cursorHeap) Len() int { return len(h.list) }
func (h *cursorHeap) Less(i, j int) bool {
	return h.before(h.list[i].rows[0].score, h.list[j].rows[0].score)
}
func (h *cursorHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *cursorHeap) Push(x any)    { h.list = append(h.list, x.(*cursor)) }

func (h *cursorHeap) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}
