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

// observedBit is added to the state of an entry that observe mode let through.
const observedBit = 8

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
	no    int64 // tells it apart from others of its lane and score
	start int64
	asked int64
	units int64
	state int64
	calls int64 // 1, except for a merged row
	// observed: but for observe mode it would have been refused.
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

// entryColumns are the columns that scanEntry reads.
const entryColumns = "id, lane, score, no, coalesce(start, score), coalesce(asked, units), units, calls, state & 7, state >> 3, job, region, run"

func (e *entry) columns() []any {
	return []any{(*storedID)(&e.id), &e.lane, &e.score, &e.no, &e.start, &e.asked, &e.units, &e.calls, &e.state, &e.observed, &e.job, &e.region, &e.run}
}

// entryAt reads the entry with an id, or returns nil. The entry may no longer be held.
func (l *ledger) entryAt(id string) (*entry, error) {
	e := &entry{}
	found, err := l.c.first("SELECT "+entryColumns+" FROM entry_id AS i JOIN entry USING (b, lane, score, no) WHERE i.b = ? AND i.hash = ? AND id = ?",
		[]any{l.b, hashOf(id), stored(id)}, e.columns()...)
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
	if err := l.put(e); err != nil {
		return err
	}
	l.n++
	l.units += e.units
	return l.addToSum(e.lane, e.score, e.units, e.calls)
}

// put writes an entry's rows, and gives it a number among those of its lane and score.
func (l *ledger) put(e *entry) error {
	state := e.state
	if e.observed {
		state += observedBit
	}
	var start, asked any
	if e.start != e.score {
		start = e.start
	}
	if e.asked != e.units {
		asked = e.asked
	}
	write := func() error {
		return l.c.exec("INSERT INTO entry(b, lane, score, no, id, units, calls, state, start, asked, job, region, run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			l.b, e.lane, e.score, e.no, stored(e.id), e.units, e.calls, state, start, asked, e.job, e.region, e.run)
	}
	e.no = 0
	err := write()
	if isTaken(err) {
		if _, err := l.c.first("SELECT max(no) + 1 FROM entry WHERE b = ? AND lane = ? AND score = ?", []any{l.b, e.lane, e.score}, &e.no); err != nil {
			return err
		}
		err = write()
	}
	if err != nil {
		return err
	}
	return l.c.exec("INSERT INTO entry_id(b, hash, lane, score, no) VALUES (?, ?, ?, ?, ?)", l.b, hashOf(e.id), e.lane, e.score, e.no)
}

// erase deletes an entry's rows.
func (l *ledger) erase(e *entry) error {
	if err := l.c.exec("DELETE FROM entry WHERE b = ? AND lane = ? AND score = ? AND no = ?", l.b, e.lane, e.score, e.no); err != nil {
		return err
	}
	return l.c.exec("DELETE FROM entry_id WHERE b = ? AND hash = ? AND lane = ? AND score = ? AND no = ?", l.b, hashOf(e.id), e.lane, e.score, e.no)
}

// take takes an entry out of the file, and changes no total and no sum.
func (l *ledger) take(e *entry) error {
	if err := l.erase(e); err != nil {
		return err
	}
	if l.witness == e.id {
		l.witness = ""
	}
	l.n--
	l.units -= e.units
	return nil
}

// remove takes an entry out of the file and out of every total that counts it.
func (l *ledger) remove(e *entry) error {
	if err := l.take(e); err != nil {
		return err
	}
	l.takeBack(e)
	return l.addToSum(e.lane, e.score, -e.units, -e.calls)
}

// move gives an entry another lane, state, units and score, and changes the sums, but no
// total.
func (l *ledger) move(e, to *entry) error {
	if err := l.erase(e); err != nil {
		return err
	}
	if err := l.put(to); err != nil {
		return err
	}
	if err := l.addToSum(e.lane, e.score, -e.units, -e.calls); err != nil {
		return err
	}
	return l.addToSum(to.lane, to.score, to.units, to.calls)
}

// finish ends an open reservation with a state, units and a score.
func (l *ledger) finish(e *entry, state, units, score, now int64) error {
	ended := *e
	ended.lane, ended.state, ended.units, ended.score = laneOf(e.operation(), units, state), state, units, score
	if err := l.move(e, &ended); err != nil {
		return err
	}
	if min(e.score, score) < now {
		l.walkNo++
	}
	l.changes++
	l.count(e.lane, e.state, e.score, -e.units, -1)
	l.count(ended.lane, state, score, units, 1)
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
