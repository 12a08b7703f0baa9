package outage

import (
	"slices"

	"github.com/quotactl/quotactl/budget"
)

// A call carries one mark, the newest that the host's processes and calls were told. Two
// of them may have been told of one ledger's two histories, as a split or a snapshot
// leaves them: the mark of the one that did not last is never the newest again, and its
// charges would never be missed. So each mark that another takes the place of without a
// call having carried it is a doubt, until one has.

// maxDoubts is how many there are of a budget at most.
const maxDoubts = 16

// doubt notes a mark that no call has carried.
func (r *remembered) doubt(mark budget.Mark) {
	same := func(other budget.Mark) bool { return other.ID == mark.ID }
	if mark.ID == "" || mark.Ledger != r.Mark.Ledger || same(r.Mark) || slices.ContainsFunc(r.Doubts, same) || slices.ContainsFunc(r.carried, same) {
		return
	}
	doubts := append(slices.Clone(r.Doubts), mark)
	r.Doubts = doubts[max(0, len(doubts)-maxDoubts):]
}

// doubtUsed takes in what was told of a limit while there are doubts: the latest may be of
// the history that lacks some.
func (r *remembered) doubtUsed(limit string, used int64) {
	if len(r.Doubts) == 0 {
		return
	}
	if r.Most == nil {
		r.Most = map[string]int64{}
	}
	r.Most[limit] = max(r.Most[limit], used)
}

// others are the doubts about the ledger of the mark.
func (r *remembered) others() []budget.Mark {
	return slices.DeleteFunc(slices.Clone(r.Doubts), func(doubt budget.Mark) bool { return doubt.Ledger != r.Mark.Ledger })
}

// held notes that the ledger holds what a call carried.
func (m *memory) held(name string, mark budget.Mark, others []budget.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	r.carried = append(others, mark)
	r.Doubts = slices.DeleteFunc(r.others(), func(doubt budget.Mark) bool { return slices.Contains(others, doubt) })
	if len(r.Doubts) == 0 {
		r.Most = nil
	}
}
