package sqlitestore

import (
	"strconv"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// merge gives up the ids of entries that only coarse windows can still count, and puts
// those of one slot, operation, job, region and mark into one row. done is false if the
// steps ran out; later calls continue.
func (l *ledger) merge(now int64, steps *int) (done bool, err error) {
	precisions := l.precisions()
	boundary := l.merged
	for _, p := range precisions {
		at := now - driver.MinHeld
		boundary = max(boundary, at-at%p)
	}
	if boundary == l.merged {
		return true, nil
	}
	if done, err := l.settle(now, steps); err != nil || !done {
		return false, err
	}
	lanes, err := l.lanes()
	if err != nil {
		return false, err
	}
	for _, lane := range lanes {
		for more := true; more; {
			if *steps <= 0 {
				return false, nil
			}
			if more, err = l.mergeSome(lane, boundary, precisions, steps); err != nil {
				return false, err
			}
		}
	}
	l.merged = boundary
	return true, nil
}

// precisions returns the precisions of the live coarse windows, or nothing if a live window
// needs finer ones.
func (l *ledger) precisions() (list []int64) {
	for _, w := range l.windows {
		switch {
		case w.kind == limit.CalendarKind:
			return nil
		case w.precise > 0:
			list = append(list, w.precise)
		case w.length > driver.MinHeld:
			return nil
		}
	}
	return list
}

// settle brings all live windows to now, and each total's cut up to the window's, so that
// merging never moves an entry past a cut.
func (l *ledger) settle(now int64, steps *int) (done bool, err error) {
	for _, w := range l.windows {
		if done, err := l.advance(w, now, steps); err != nil || !done {
			return false, err
		}
	}
	for _, w := range l.windows {
		cut := w.cutAt(now)
		for _, t := range w.lanes {
			if t.cut < cut {
				t.cut, t.dirty = cut, true
			}
		}
	}
	return true, nil
}

// rewriting is how many steps it takes to write an entry anew.
const rewriting = 4

// mergeSome merges some entries of a lane. more: there are others. A merged row's id
// contains a space, which no caller's id can. Forgotten entries are left to prune.
func (l *ledger) mergeSome(lane, boundary int64, precisions []int64, steps *int) (more bool, err error) {
	limit := max(1, min(*steps, chunk)/rewriting)
	one, list := entry{}, []entry(nil)
	err = l.c.each("SELECT "+entryColumns+" FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ? AND state & 7 <> ? ORDER BY score LIMIT ?",
		[]any{l.b, lane, max(l.merged, l.gone), boundary, stateMerged, limit}, func() { list = append(list, one) }, one.columns()...)
	if err != nil || len(list) == 0 {
		return false, err
	}
	*steps -= rewriting * len(list)
	type slot struct {
		end, job, region int64
		observed         bool
	}
	rows := map[slot]*entry{}
	for i := range list {
		e := &list[i]
		if e.state == stateReleased {
			if err := l.remove(e); err != nil {
				return false, err
			}
			continue
		}
		if err := l.take(e); err != nil {
			return false, err
		}
		if err := l.addToSum(lane, e.score, -e.units, -e.calls); err != nil {
			return false, err
		}
		end := slotEnd(e.score, precisions)
		key := slot{end, e.job, e.region, e.observed}
		if rows[key] == nil {
			l.rowNo++
			rows[key] = &entry{id: " " + strconv.FormatInt(l.rowNo, 10), lane: lane, score: end, start: end, state: stateMerged, job: e.job, region: e.region, observed: e.observed}
		}
		rows[key].units += e.units
		rows[key].calls++
	}
	for _, e := range rows {
		e.asked = e.units
		if err := l.store(e); err != nil {
			return false, err
		}
	}
	// Walks under way have counted the entries at their old scores.
	l.walkNo++
	for _, m := range l.meters {
		if m.reached != toTheEnd {
			l.replayAnew(m)
		}
	}
	return len(list) == limit, nil
}

// slotEnd is the first end of a slot at or after a score.
func slotEnd(score int64, precisions []int64) int64 {
	end := limit.SlotEnd(score, precisions[0])
	for _, p := range precisions {
		end = min(end, limit.SlotEnd(score, p))
	}
	return end
}
