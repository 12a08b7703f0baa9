package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// A call carries one mark, the newest that the host's processes and calls were told. Two
// of them may have been told of one ledger's two histories, as a split or a snapshot
// leaves them: the mark of the one that did not stay may never be the newest again, and
// its charges would not be missed. So a mark is in doubt from when another takes its
// place, unless the answer that brought the other was to a call that carried it. The next
// call carries what is in doubt too.

// doubt is a mark, and what each limit had used as of it, by its name.
type doubt struct {
	Mark  driver.Mark      `json:"mark"`
	Used  map[string]int64 `json:"used,omitempty"`
	asked bool             // by a call under way
}

// maxDoubts is how many there are of a budget at most; more are not noted.
const maxDoubts = 64

// doubt notes a mark that another is newer than.
func (r *remembered) doubt(mark driver.Mark, used map[string]int64) {
	same := func(d doubt) bool { return d.Mark.ID == mark.ID }
	if mark.ID == "" || mark.ID == r.Mark.ID || mark.Ledger != r.Mark.Ledger || slices.ContainsFunc(r.Doubts, same) {
		return
	}
	r.Doubts = slices.DeleteFunc(r.Doubts, func(d doubt) bool { return d.Mark.Ledger != r.Mark.Ledger })
	if len(r.Doubts) < maxDoubts {
		r.Doubts, r.dirty = append(r.Doubts, doubt{Mark: mark, Used: used}), true
	}
}

// ask is what is in doubt of the mark's ledger and no call under way carries.
func (r *remembered) ask() (marks []driver.Mark) {
	for i, d := range r.Doubts {
		if d.Mark.Ledger == r.Mark.Ledger && !d.asked {
			r.Doubts[i].asked = true
			marks = append(marks, d.Mark)
		}
	}
	return marks
}

// answered notes whether the ledger was found to hold what a call carried.
func (r *remembered) answered(marks []driver.Mark, held bool) {
	if len(marks) == 0 {
		return
	}
	r.Doubts = slices.DeleteFunc(r.Doubts, func(d doubt) bool { return held && slices.Contains(marks, d.Mark) })
	for i, d := range r.Doubts {
		r.Doubts[i].asked = d.asked && !slices.Contains(marks, d.Mark)
	}
}

// unanswered notes that a call did not tell whether the ledger holds what it carried.
func (m *memory) unanswered(name string, marks []driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).answered(marks, false)
}

// used is what each limit has used on the mark's ledger.
func (r *remembered) used() map[string]int64 {
	list := map[string]int64{}
	for name, u := range r.Limits {
		if u.Ledger == r.Mark.Ledger {
			list[name] = u.Used
		}
	}
	return list
}

// inDoubt is the most that a limit had used on a ledger as of what is in doubt: what was
// told last may be of the history that lacks some.
func (r *remembered) inDoubt(ledger, limit string) (used int64) {
	for _, d := range r.Doubts {
		if d.Mark.Ledger == ledger {
			used = max(used, d.Used[limit])
		}
	}
	return used
}

// leave is what a process writes that goes on: what is in doubt it asks itself.
func (r *remembered) leave(ends bool) remembered {
	written := *r
	if !ends {
		written.Doubts, written.Untold = nil, nil
	}
	return written
}

// takeOver adds what a process has left that ended.
func (r *remembered) takeOver(other *remembered) {
	for _, d := range other.Doubts {
		r.doubt(d.Mark, d.Used)
	}
	if len(other.Untold) > 0 {
		untold := maps.Clone(other.Untold)
		maps.Copy(untold, r.Untold)
		r.Untold = untold
	}
}
