package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// A call carries one mark: the newest that the store gave to any call or process of the
// host. After a split or a restored snapshot a ledger may have had two histories, and two
// calls may hold a mark of each. If the mark of the history that was dropped never becomes
// the newest, nobody would notice that its charges are missing. So a mark that another one
// replaces is in doubt, unless the answer with the new mark was to a call that carried the
// old one. The next call carries the marks in doubt too.

// doubt is a mark, and what each limit, by name, had used as of it.
type doubt struct {
	Mark  driver.Mark      `json:"mark"`
	Used  map[string]int64 `json:"used,omitempty"`
	asked bool             // a call under way carries it
}

// maxDoubts bounds a budget's doubts; further ones are dropped.
const maxDoubts = 64

// doubt notes a mark that a newer one replaced.
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

// ask returns the doubts on the current mark's ledger that no call under way carries, and
// marks them as carried.
func (r *remembered) ask() (marks []driver.Mark) {
	for i, d := range r.Doubts {
		if d.Mark.Ledger == r.Mark.Ledger && !d.asked {
			r.Doubts[i].asked = true
			marks = append(marks, d.Mark)
		}
	}
	return marks
}

// answered ends a call that carried marks. Marks that the ledger holds are no longer in
// doubt; otherwise another call may carry them.
func (r *remembered) answered(marks []driver.Mark, held bool) {
	if len(marks) == 0 {
		return
	}
	r.Doubts = slices.DeleteFunc(r.Doubts, func(d doubt) bool { return held && slices.Contains(marks, d.Mark) })
	for i, d := range r.Doubts {
		r.Doubts[i].asked = d.asked && !slices.Contains(marks, d.Mark)
	}
}

// unanswered notes that a call which carried marks did not learn whether the ledger holds
// them.
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

// inDoubt returns the most that a limit had used on a ledger as of a mark in doubt: the
// last answer may be from a history that lacks some charges.
func (r *remembered) inDoubt(ledger, limit string) (used int64) {
	for _, d := range r.Doubts {
		if d.Mark.Ledger == ledger {
			used = max(used, d.Used[limit])
		}
	}
	return used
}

// leave is what a process writes down. Only one that ends writes its doubts: until then
// it checks them itself.
func (r *remembered) leave(ends bool) remembered {
	written := *r
	if !ends {
		written.Doubts, written.Untold = nil, nil
	}
	return written
}

// takeOver adds what a process that ended has left.
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
