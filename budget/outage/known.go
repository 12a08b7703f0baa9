package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// sight is what a limit had used when a store told of it.
type sight struct {
	Used int64 `json:"used"`
	At   int64 `json:"at"` // µs on the store's clock, no earlier than what is used
	// Changes is how many the ledger had made then; 0 where an older version wrote it.
	Changes int64 `json:"changes,omitempty"`
}

// after reports whether it was told of a ledger after another sight of the same, or
// is the same.
func (s sight) after(other sight) bool {
	if s.Changes != other.Changes {
		return s.Changes > other.Changes
	}
	return s.At >= other.At
}

// usage is what is known of one limit.
type usage struct {
	sight // on the mark's ledger; zero: not told yet
	// Ledger is the id of that ledger.
	Ledger string `json:"ledger,omitempty"`
	// Owed is what other ledgers had told last, by their ids: it is to be recovered.
	Owed map[string]sight `json:"owed,omitempty"`
	// Done is of what sight of each lost ledger this was done, by its id.
	Done map[string]int64 `json:"recovered,omitempty"`
}

// unnamed stands for the id of a ledger that was seen before ledgers had ids.
const unnamed = "-"

// live reports whether a ledger is not known to have lost anything.
func (r *remembered) live(ledger string) bool {
	return ledger != "" && !slices.Contains(r.Gone, ledger)
}

// owe notes what is to be recovered, unless it was: by a process that had not heard of
// what another has yet to tell it is done again.
func (u *usage) owe(ledger string, seen sight, untold bool) {
	if seen == (sight{}) || u.Done[ledger] >= seen.At && !untold || u.Owed[ledger].At >= seen.At {
		return
	}
	if u.Owed == nil {
		u.Owed = map[string]sight{}
	}
	u.Owed[ledger] = seen
}

// done notes that a ledger was recovered from, as of what was seen at an instant.
func (u *usage) done(ledger string, at int64) {
	if u.Done == nil {
		u.Done = map[string]int64{}
	}
	u.Done[ledger] = max(at, u.Done[ledger])
}

// named is the id of a ledger that had none when it was seen: the mark's, which was
// found to hold what was charged then.
func (r *remembered) named(ledger string) string {
	if ledger == unnamed && r.live(unnamed) {
		return r.Mark.Ledger
	}
	return ledger
}

// sort has what each limit had used on a ledger that is not the mark's, or has lost
// something, recovered.
func (r *remembered) sort() {
	for name, u := range r.Limits {
		u.Ledger = r.named(u.Ledger)
		if u.Ledger != r.Mark.Ledger || !r.live(u.Ledger) {
			if u.Ledger != "" {
				r.lose(u.Ledger)
				u.Used = max(u.Used, r.inDoubt(u.Ledger, name))
				u.owe(u.Ledger, u.sight, false)
			}
			u.sight, u.Ledger = sight{}, ""
		}
		for ledger := range u.Done {
			if r.live(ledger) { // lost so long ago that it is forgotten
				delete(u.Done, ledger)
			}
		}
		r.Limits[name] = u
	}
}

// learn takes in the mark of an answer, which marks its call carried, and what limits had
// used as of it. Answers may come in another order than the store gave them: of each limit
// the latest holds, and what a ledger told before it was lost is to be recovered.
func (r *remembered) learn(mark driver.Mark, carried []driver.Mark, limits []limit.Limit, used func(i int) (amount int64, told bool)) {
	before := r.Mark
	r.answered(carried, mark.Ledger != "") // else it was not looked for
	r.tell(mark)
	if mark.Ledger == "" {
		return
	}
	if !slices.ContainsFunc(carried, func(one driver.Mark) bool { return one.ID == before.ID }) {
		r.doubt(before, r.used())
	}
	if r.Mark.ID != mark.ID {
		told := map[string]int64{}
		for i, l := range limits {
			if amount, ok := used(i); ok {
				told[l.Name] = amount
			}
		}
		r.doubt(mark, told)
	}
	lost := mark.Ledger != r.Mark.Ledger || !r.live(mark.Ledger)
	if lost {
		r.lose(mark.Ledger)
	}
	for i, l := range limits {
		amount, told := used(i)
		seen := sight{amount, max(mark.Seen, mark.At), mark.Changes} // a charge may be later than the clock that frees
		u := r.Limits[l.Name]
		switch {
		case !told:
		case lost:
			if owed, ok := u.Owed[mark.Ledger]; ok && !seen.after(owed) {
				continue
			} else if ok { // it may have been rolled back in between
				seen.Used = max(seen.Used, owed.Used)
			}
			u.owe(mark.Ledger, seen, false)
			r.Limits[l.Name], r.dirty = u, true
		case u.Ledger == "" || seen != u.sight && seen.after(u.sight):
			u.sight, u.Ledger = seen, mark.Ledger
			r.Limits[l.Name], r.dirty = u, true
		}
	}
}

// tell takes in what an answer of the store said of the ledger.
func (r *remembered) tell(mark driver.Mark) {
	next := r.Mark
	switch {
	case mark.Ledger == "":
	case r.live(mark.Ledger):
		next = r.newer(r.Mark, mark)
	case r.live(r.Mark.Ledger) && mark.Seen > r.Mark.Seen:
		next = mark // restored, so long after it was lost that the store did not see it: it is to be recovered
	}
	if next != r.Mark {
		r.Mark, r.dirty = next, true
		r.sort()
	}
}

// newer is the one of two marks that the next call is to carry.
func (r *remembered) newer(a, b driver.Mark) driver.Mark {
	liveA, liveB := r.live(a.Ledger), r.live(b.Ledger)
	switch {
	case a.Ledger == b.Ledger && a.Changes != b.Changes:
		// Whichever came last: a ledger that was rolled back while a call was under way
		// answers that one with fewer, and the next call is to find that out.
		if a.Changes > b.Changes {
			return a
		}
		return b
	case liveA != liveB && a.Ledger != b.Ledger:
		if liveA {
			return a
		}
		return b
	case a.Seen > b.Seen:
		return a
	}
	return b
}

// merge takes over what another process of the host knows.
func (r *remembered) merge(other *remembered) {
	for _, id := range other.Gone {
		r.lose(id)
	}
	before, used := r.Mark, r.used()
	r.Mark = r.newer(other.Mark, r.Mark)
	r.sort()
	r.takeOver(other)
	r.doubt(before, used)
	if other.Mark != r.file { // else it is known already
		r.doubt(other.Mark, other.used())
		r.file = other.Mark
	}
	for name, theirs := range other.Limits {
		mine := r.Limits[name]
		theirs.Ledger = r.named(theirs.Ledger)
		for ledger, at := range theirs.Done {
			if !r.live(ledger) {
				mine.done(ledger, at)
			}
		}
		for ledger, at := range mine.Done {
			if owed, ok := mine.Owed[ledger]; ok && owed.At <= at && !r.Untold[ledger] {
				delete(mine.Owed, ledger)
			}
		}
		for ledger, seen := range theirs.Owed {
			mine.owe(ledger, seen, r.Untold[ledger])
		}
		switch {
		case theirs.Ledger == "":
		case theirs.Ledger != r.Mark.Ledger || !r.live(theirs.Ledger):
			r.lose(theirs.Ledger)
			mine.owe(theirs.Ledger, theirs.sight, false)
		case mine.Ledger == "" || !mine.after(theirs.sight):
			mine.sight, mine.Ledger = theirs.sight, theirs.Ledger
		}
		r.Limits[name] = mine
	}
	for name, t := range other.Facts {
		if mine := r.Facts[name]; t.Boot != mine.Boot || t.At > mine.At {
			r.Facts[name] = t
		}
	}
	r.Held = max(r.Held, other.Held)
	r.Crowd, r.Charges = max(r.Crowd, other.Crowd), r.Charges || other.Charges
	if other.AtWorkAt > r.AtWorkAt {
		r.AtWork, r.AtWorkAt = other.AtWork, other.AtWorkAt
	}
}

// lose notes that a ledger has lost something.
func (r *remembered) lose(id string) {
	if slices.Contains(r.Gone, id) {
		return
	}
	if slices.ContainsFunc(r.fresh, func(s stretch) bool { return s.Ledger == id }) {
		if r.Untold == nil {
			r.Untold = map[string]bool{}
		}
		r.Untold[id] = true
	}
	gone := append(slices.Clone(r.Gone), id)
	r.Gone, r.dirty = gone[max(0, len(gone)-driver.MaxGone):], true
}

// mark is what the store is to be asked with, and others are more of the same ledger; an
// answer, or unanswered, tells what became of them.
func (m *memory) mark(name string) (mark driver.Mark, others []driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	mark = r.Mark
	switch {
	case mark.Ledger == unnamed:
		mark.Ledger = ""
	case !r.live(mark.Ledger): // it is not recovered yet
		return driver.Mark{}, nil
	}
	return mark, r.ask()
}

// owesMore reports whether anything is to be recovered of other limits than those.
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

// standing is a lock that a host was told of: for how many µs more, until when by the
// store's clock (0: an older version did not note it), and why.
type standing struct {
	wait, until int64
	why         string
}

// locks are those that stand, by the limit's name; empty: the whole budget.
func (m *memory) locks(name string) map[string]standing {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]standing{}
	boot, now, err := m.boot()
	for limit, t := range m.of(name).Facts {
		if err == nil && t.Locked && t.Boot == boot && t.Until > now {
			found[limit] = standing{t.Until - now, t.End, t.Why}
		}
	}
	return found
}

// charges reports whether the host has charged to a budget itself.
func (m *memory) charges(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).Charges
}

// miss notes that the ledger has lost something of what it was asked with. noticed is
// false where another call or process of the host has recovered it already; recoverable
// is false where this host was told nothing that it could have recovered.
func (m *memory) miss(name string, asked driver.Mark) (noticed, recoverable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	m.reread(name, r) // another process may have seen more
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

// lost lists the recoveries that are still to be made: one for each ledger and
// instant at which some of the limits were seen, the oldest first, or where none was, one that
// tells of the loss alone.
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

// recovered notes that a recovery was made, and what the store said of the ledger.
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
	r.tell(mark)
	for i, l := range recovery.Limits { // until the store tells more, that much it holds
		u := r.Limits[l.Name]
		if recovery.Used[i] >= 0 && (u.Ledger == "" || recovery.Used[i] > u.Used) && mark.Ledger == r.Mark.Ledger {
			u.sight, u.Ledger = sight{recovery.Used[i], min(max(recovery.At, u.At), mark.Seen), mark.Changes}, mark.Ledger
			r.Limits[l.Name] = u
		}
	}
	r.dirty = true
	err := m.save(recovery.Budget, r)
	r.saved = 0 // what the store tells next is written at once: the other processes need it now
	return err
}
