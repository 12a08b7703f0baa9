package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// miss notes that the ledger lacks a mark that a call carried. noticed is false if another
// call or process of the host has recovered the loss already. recoverable is false if this
// host knows nothing that could be recovered.
func (m *memory) miss(name string, asked driver.Mark) (noticed, recoverable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	_ = m.reread(name, r) // another process may have seen more
	if r.Mark == (driver.Mark{}) {
		return true, false
	}
	if asked.Ledger != "" && r.Mark.Ledger != asked.Ledger && r.Mark.Ledger != unnamed && r.live(r.Mark.Ledger) {
		return false, true
	}
	if r.Mark.Ledger == asked.Ledger || r.Mark.Ledger == unnamed || !r.live(r.Mark.Ledger) {
		r.lose(r.Mark.Ledger)
		r.sort()
	}
	return true, true
}

// lost lists the recoveries to be made, the oldest first: one for each ledger and instant
// at which some of the limits were seen. If there are none and the mark's ledger is lost,
// it returns one that only reports the loss.
func (m *memory) lost(name string, limits []limit.Limit) (list []driver.Recovery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	add := func(mark driver.Mark) int {
		one := driver.Recovery{Budget: name, Limits: limits, Used: make([]int64, len(limits)), At: mark.Seen, Mark: mark, Gone: slices.Clone(r.Gone)}
		for i := range one.Used {
			one.Used[i] = -1
		}
		list = append(list, one)
		return len(list) - 1
	}
	for i, l := range limits {
		for ledger, seen := range r.Limits[l.Name].Owed {
			mark := driver.Mark{Ledger: ledger, Seen: seen.At}
			at := slices.IndexFunc(list, func(one driver.Recovery) bool { return one.Mark == mark })
			if at < 0 {
				at = add(mark)
			}
			list[at].Used[i] = seen.Used
		}
	}
	if len(list) == 0 && r.Mark.Ledger != "" && !r.live(r.Mark.Ledger) {
		add(r.Mark)
	}
	slices.SortFunc(list, func(a, b driver.Recovery) int { return int(a.At - b.At) })
	return list
}

// recovered notes that a recovery was made, and the store's new mark.
func (m *memory) recovered(recovery driver.Recovery, mark driver.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(recovery.Budget)
	ledger := recovery.Mark.Ledger
	for i, l := range recovery.Limits {
		u := r.Limits[l.Name]
		if recovery.Used[i] < 0 {
			continue
		}
		if seen, ok := u.Owed[ledger]; ok && seen.At <= recovery.At {
			delete(u.Owed, ledger)
		}
		u.done(ledger, recovery.At)
		r.Limits[l.Name] = u
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.Limits)), func(u usage) bool { _, owed := u.Owed[ledger]; return owed }) {
		delete(r.Untold, ledger)
	}
	before, used := r.Mark, r.used()
	r.tell(mark)
	r.doubt(before, used)               // the recovery did not carry it
	for i, l := range recovery.Limits { // the ledger now holds at least that much
		u := r.Limits[l.Name]
		if recovery.Used[i] >= 0 && (u.Ledger == "" || recovery.Used[i] > u.Used) && mark.Ledger == r.Mark.Ledger {
			u.sight, u.Ledger = sight{recovery.Used[i], min(max(recovery.At, u.At), mark.Seen), mark.Changes}, mark.Ledger
			r.Limits[l.Name] = u
		}
	}
	r.dirty = true
	err := m.save(recovery.Budget, r)
	r.saved = 0 // write the next answer at once: the other processes need it
	return err
}

// owesMore reports whether anything is owed on limits other than the given ones.
func (m *memory) owesMore(name string, limits []limit.Limit) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, u := range m.of(name).Limits {
		if len(u.Owed) > 0 && !slices.ContainsFunc(limits, func(l limit.Limit) bool { return l.Name == other }) {
			return true
		}
	}
	return false
}
