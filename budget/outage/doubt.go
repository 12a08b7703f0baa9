package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
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

// sure is a charge, as of a count of changes, that the ledger was found to hold. An id alone may
// stand for another charge later.
type sure struct {
	ID      string `json:"id"`
	At      int64  `json:"at"`
	Changes int64  `json:"changes"`
}

// passed reports whether the history of the newest mark has this one.
func (r *remembered) passed(m driver.Mark) bool {
	return slices.ContainsFunc(r.Past, func(s sure) bool { return s.ID == m.ID && s.At == m.At && s.Changes >= m.Changes })
}

// maxDoubts bounds a budget's doubts; further ones are dropped. A process knows maxPast marks
// to be held, and tells the others of pastTold.
const (
	maxDoubts = 64
	maxPast   = 2 * maxDoubts
	pastTold  = 8
)

// doubt notes a mark that a newer one replaced.
func (r *remembered) doubt(mark driver.Mark, used map[string]int64) {
	same := func(d doubt) bool { return d.Mark.ID == mark.ID }
	if mark.ID == "" || mark.ID == r.Mark.ID || mark.Ledger != r.Mark.Ledger || r.passed(mark) || slices.ContainsFunc(r.Doubts, same) {
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
	was := len(r.Doubts)
	r.Doubts = slices.DeleteFunc(r.Doubts, func(d doubt) bool { return held && slices.Contains(marks, d.Mark) })
	r.dirty = r.dirty || len(r.Doubts) < was // the directory may have them
	for i, d := range r.Doubts {
		r.Doubts[i].asked = d.asked && !slices.Contains(marks, d.Mark)
	}
}

// pass notes marks that the history of the newest one has: they are not in doubt.
func (r *remembered) pass(list ...sure) {
	for _, one := range list {
		if one.ID == "" || one.ID == r.Mark.ID && one.At == r.Mark.At {
			continue
		}
		r.Past = slices.DeleteFunc(r.Past, func(s sure) bool {
			if s.ID != one.ID || s.At != one.At {
				return false
			}
			one.Changes = max(one.Changes, s.Changes)
			return true
		})
		r.Past = append(r.Past, one)
	}
	r.Past = r.Past[max(0, len(r.Past)-maxPast):]
	r.Doubts = slices.DeleteFunc(r.Doubts, func(d doubt) bool { return r.passed(d.Mark) })
}

// unanswered notes that a call which carried marks did not learn whether the ledger holds
// them.
func (m *memory) unanswered(name string, marks []driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).answered(marks, false)
}

// busy lists the budgets on which the process had more than the one answer of most commands.
func (m *memory) busy() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.budgets {
		if r.answers > 1 {
			list = append(list, name)
		}
	}
	return list
}

// asks returns the limits of the process's last question: the store judges by them what it lacks.
func (m *memory) asks(name string) []limit.Limit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).asks
}

// confirmed takes in that the ledger holds the marks which a look carried.
func (m *memory) confirmed(look driver.Look, mark driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(look.Budget).learn(mark, append(look.Others, look.Mark), nil, nil)
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
	written.Past = r.Past[max(0, len(r.Past)-pastTold):]
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
