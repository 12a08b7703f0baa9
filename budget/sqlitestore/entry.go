package sqlitestore

import (
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// The states of an entry.
const (
	statePlain = iota
	stateOpen
	stateSettled
	stateReleased
	stateMerged // a row for several charges of one slot, which have given up their ids
)

// The classes of a lane: walks for units read the first, walks for calls the first two,
// and no walk reads the last.
const (
	classUnits = iota
	classZero
	classReleased
	classes = 4 // the lane's number is operation × classes + class
)

// entry is one charge.
type entry struct {
	id    string
	lane  int64
	score int64
	start int64
	asked int64
	units int64
	state int64
	calls int64 // 1, except for a merged row
	// observed: but for observe mode it would have been refused. It is written with the
	// entry; only merging, sums and exports read it.
	observed bool

	job, region, run int64
}

func (e *entry) operation() int64 { return e.lane / classes }

// ended is how a reservation has ended at now; empty if it is open or a plain charge.
func (e *entry) ended(now int64) driver.Ended {
	switch {
	case e.state == stateSettled:
		return driver.EndedSettled
	case e.state == stateReleased:
		return driver.EndedReleased
	case e.state == stateOpen && e.score <= now:
		return driver.EndedLease
	}
	return ""
}

// laneOf is the lane of an entry with these units and this state.
func laneOf(operation, units, state int64) int64 {
	switch {
	case state == stateReleased:
		return operation*classes + classReleased
	case units == 0:
		return operation*classes + classZero
	}
	return operation*classes + classUnits
}

// entryAt reads the entry with an id, or returns nil. The entry may no longer be held.
func (l *ledger) entryAt(id string) (*entry, error) {
	e := &entry{id: id, calls: 1}
	found, err := l.c.first("SELECT lane, score, start, asked, units, state, job, region, run FROM entry WHERE b = ? AND id = ?", []any{l.b, id},
		&e.lane, &e.score, &e.start, &e.asked, &e.units, &e.state, &e.job, &e.region, &e.run)
	if err != nil || !found {
		return nil, err
	}
	return e, nil
}

// held reports whether an entry's id still identifies it. An entry that is no longer held
// stays in the file until it is pruned.
func (l *ledger) held(e *entry, now int64) bool {
	return e != nil && e.score >= l.earliest(now)
}

// insert records a charge.
func (l *ledger) insert(e *entry) error {
	if err := l.store(e); err != nil {
		return err
	}
	l.fresh++
	l.changes++
	l.count(e.lane, e.state, e.score, e.units, e.calls)
	return nil
}

// store writes an entry, and changes no total.
func (l *ledger) store(e *entry) error {
	err := l.c.exec("INSERT INTO entry(b, id, lane, score, start, asked, units, state, job, region, run, calls, observed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		l.b, e.id, e.lane, e.score, e.start, e.asked, e.units, e.state, e.job, e.region, e.run, e.calls, e.observed)
	if err != nil {
		return err
	}
	l.n++
	l.units += e.units
	return nil
}

// remove takes an entry out of the file and out of every total that counts it.
func (l *ledger) remove(e *entry) error {
	if err := l.c.exec("DELETE FROM entry WHERE b = ? AND id = ?", l.b, e.id); err != nil {
		return err
	}
	if l.witness == e.id {
		l.witness = ""
	}
	l.n--
	l.units -= e.units
	l.takeBack(e)
	return nil
}

// finish ends an open reservation with a state, units and a score.
func (l *ledger) finish(e *entry, state, units, score, now int64) error {
	lane := laneOf(e.operation(), units, state)
	err := l.c.exec("UPDATE entry SET lane = ?, score = ?, units = ?, state = ? WHERE b = ? AND id = ?", lane, score, units, state, l.b, e.id)
	if err != nil {
		return err
	}
	if min(e.score, score) < now {
		l.walkNo++
	}
	l.changes++
	l.count(e.lane, e.state, e.score, -e.units, -1)
	l.count(lane, state, score, units, 1)
	l.units += units - e.units
	return nil
}

// row is the part of an entry that walks read.
type row struct{ score, units, calls int64 }

// rows reads entries of a lane with scores above above and up to upto, lowest first. It
// returns about limit of them, and of each score all or none. more: there are others above
// the last one.
func (l *ledger) rows(lane, above, upto int64, limit int) (list []row, more bool, err error) {
	return l.wholeScores(lane, limit, "",
		"SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ? ORDER BY score LIMIT ?",
		l.b, lane, above, upto, limit+1)
}

// rowsOf is rows for the entries that a window counts, without an upper bound.
func (l *ledger) rowsOf(w *window, lane, above int64, limit int) (list []row, more bool, err error) {
	return l.wholeScores(lane, limit, w.counted(),
		"SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score > ?"+w.counted()+" ORDER BY score LIMIT ?",
		l.b, lane, above, limit+1)
}

// rowsDown is rows from the highest down: scores below below and from downto.
func (l *ledger) rowsDown(lane, below, downto int64, limit int) (list []row, more bool, err error) {
	return l.wholeScores(lane, limit, "",
		"SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score < ? AND score >= ? ORDER BY score DESC LIMIT ?",
		l.b, lane, below, downto, limit+1)
}

// wholeScores runs a query for limit+1 rows and drops the last score if there may be more
// rows of it. If a single score has more rows than limit, it returns all rows of that
// score; which is the query's further condition.
func (l *ledger) wholeScores(lane int64, limit int, which, query string, args ...any) (list []row, more bool, err error) {
	var r row
	if err := l.c.each(query, args, func() { list = append(list, r) }, &r.score, &r.units, &r.calls); err != nil {
		return nil, false, err
	}
	if len(list) <= limit {
		return list, false, nil
	}
	last, end := list[limit].score, limit
	for end > 0 && list[end-1].score == last {
		end--
	}
	if end > 0 {
		return list[:end], true, nil
	}
	list = list[:0]
	err = l.c.each("SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score = ?"+which, []any{l.b, lane, last},
		func() { list = append(list, r) }, &r.score, &r.units, &r.calls)
	return list, true, err
}

// lanes lists the lanes that have entries.
func (l *ledger) lanes() ([]int64, error) {
	var list []int64
	for lane := int64(-1); ; {
		found, err := l.c.first("SELECT lane FROM entry WHERE b = ? AND lane > ? ORDER BY lane LIMIT 1", []any{l.b, lane}, &lane)
		if err != nil || !found {
			return list, err
		}
		list = append(list, lane)
	}
}

// covered reports whether a limit may count the entries of a lane, by its class: released
// ones never, and those of 0 units only if it counts calls.
func covered(l limit.Limit, lane int64) bool {
	switch lane % classes {
	case classUnits:
		return true
	case classZero:
		return l.Counts == limit.CountCalls
	}
	return false
}
