package outage

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// sight is what a limit had used by one answer of the store.
type sight struct {
	Used int64 `json:"used"`
	At   int64 `json:"at"` // µs on the store's clock, no earlier than any charge in Used
	// Changes is the ledger's count of changes then; 0 if an older version wrote it.
	Changes int64 `json:"changes,omitempty"`
}

// after reports whether a sight is no older than another one of the same ledger.
func (s sight) after(other sight) bool {
	if s.Changes != other.Changes {
		return s.Changes > other.Changes
	}
	return s.At >= other.At
}

// usage is what is known of one limit.
type usage struct {
	sight // on the mark's ledger; zero: no answer yet
	// Ledger is the id of that ledger.
	Ledger string `json:"ledger,omitempty"`
	// Owed is the last sight of each lost ledger that is not recovered yet, by the
	// ledger's id.
	Owed map[string]sight `json:"owed,omitempty"`
	// Done is the At of the sight up to which each lost ledger was recovered, by its id.
	Done map[string]int64 `json:"recovered,omitempty"`
}

// unnamed is used as the id of a ledger that was seen before ledgers had ids.
const unnamed = "-"

// live reports whether a ledger is not known to have lost anything.
func (r *remembered) live(ledger string) bool {
	return ledger != "" && !slices.Contains(r.Gone, ledger)
}

// owe notes a sight to be recovered, unless it was recovered already. untold: this process
// has charges on the ledger that the process which recovered it did not know, so it is
// recovered again.
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

// named replaces unnamed by the id of the mark's ledger, unless the unnamed ledger was
// lost: the mark's ledger was found to hold what was charged then.
func (r *remembered) named(ledger string) string {
	if ledger == unnamed && r.live(unnamed) {
		return r.Mark.Ledger
	}
	return ledger
}

// sort moves to Owed what each limit had used on a ledger that is not the mark's or has
// lost something.
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
			if r.live(ledger) { // Gone has dropped it, as one of the oldest
				delete(u.Done, ledger)
			}
		}
		r.Limits[name] = u
	}
}

// learn takes in an answer: its mark, the marks that its call carried, and what each limit
// had used as of it. Answers may arrive in another order than the store gave them: the
// latest one of each limit counts, and the usage of a lost ledger goes to Owed.
func (r *remembered) learn(mark driver.Mark, carried []driver.Mark, limits []limit.Limit, used func(i int) (amount int64, told bool)) {
	if r.answers++; len(limits) > 0 {
		r.asks = limits
	}
	before, past := r.Mark, r.Past
	r.answered(carried, mark.Ledger != "") // without a ledger the store did not check the marks
	r.tell(mark)
	if mark.Ledger == "" {
		return
	}
	follows := slices.ContainsFunc(carried, func(one driver.Mark) bool { return one.ID == before.ID })
	if !follows {
		r.doubt(before, r.used())
	}
	if r.Mark.ID == mark.ID {
		if follows && before.Ledger == mark.Ledger && before.ID != mark.ID {
			r.Past = past
		}
		for _, one := range carried {
			r.pass(sureOf(one))
		}
	} else {
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
		if held := l.Longest(); held > r.Held {
			r.Held, r.dirty = held, true
		}
		amount, told := used(i)
		seen := sight{amount, max(mark.Seen, mark.At), mark.Changes} // a charge may be later than the clock by which units become free
		u := r.Limits[l.Name]
		switch {
		case !told:
		case lost:
			if owed, ok := u.Owed[mark.Ledger]; ok && !seen.after(owed) {
				continue
			} else if ok { // the ledger may have been rolled back in between
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

// tell takes in the mark of an answer.
func (r *remembered) tell(mark driver.Mark) {
	next := r.Mark
	switch {
	case mark.Ledger == "":
	case r.live(mark.Ledger):
		next = r.newer(r.Mark, mark)
	case r.live(r.Mark.Ledger) && mark.Seen > r.Mark.Seen:
		next = mark // a restored ledger, lost so long ago that the store did not notice: to be recovered
	}
	if next != r.Mark {
		r.follow(next)
		r.dirty = true
	}
}

// follow makes a mark the newest. What its history has is not known.
func (r *remembered) follow(next driver.Mark) {
	if next.Ledger != r.Mark.Ledger || next.ID != r.Mark.ID {
		r.Past = nil
	}
	r.Mark = next
	r.sort()
}

// newer returns the one of two marks that the next call carries.
func (r *remembered) newer(a, b driver.Mark) driver.Mark {
	liveA, liveB := r.live(a.Ledger), r.live(b.Ledger)
	if kept := max(a.Kept, b.Kept); a.Ledger == b.Ledger {
		a.Kept, b.Kept = kept, kept
	}
	switch {
	case a.Ledger == b.Ledger && a.Changes != b.Changes:
		// More changes win, even over a later answer: if the ledger was rolled back during a
		// call, that call's answer has fewer, and the next call must find out.
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

// merge takes in what another process of the host knows.
func (r *remembered) merge(other *remembered) {
	for _, id := range other.Gone {
		r.lose(id)
	}
	before, used, past := r.Mark, r.used(), slices.Clone(r.Past)
	switch r.follow(r.newer(other.Mark, r.Mark)); {
	case r.Mark.Ledger != other.Mark.Ledger || r.Mark.Ledger != before.Ledger:
	case r.Mark.ID != other.Mark.ID: // ours
		if r.passed(other.Mark) {
			r.pass(other.Past...)
		}
	default:
		if before.ID != other.Mark.ID && !other.passed(before) {
			past = nil
		}
		r.pass(slices.Concat(other.Past, past)...)
	}
	r.takeOver(other)
	r.doubt(before, used)
	if other.Mark != r.file { // else this process has seen it already
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
	if slices.ContainsFunc(append(r.fresh, r.writing...), func(s stretch) bool { return s.Ledger == id }) {
		if r.Untold == nil {
			r.Untold = map[string]bool{}
		}
		r.Untold[id] = true
	}
	gone := append(slices.Clone(r.Gone), id)
	r.Gone, r.dirty = gone[max(0, len(gone)-driver.MaxGone):], true
}

// mark returns the mark that the next call carries, and the doubts on the same ledger. The
// caller must pass others to learn (with the answer) or to unanswered.
func (m *memory) mark(name string) (mark driver.Mark, others []driver.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	mark = r.Mark
	switch {
	case mark.Ledger == unnamed:
		mark.Ledger = ""
	case !r.live(mark.Ledger): // a loss that is not recovered yet
		return driver.Mark{}, nil
	}
	return mark, r.ask()
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

// standing is a lock that the host knows.
type standing struct {
	wait  int64 // µs it still lasts
	until int64 // its end on the store's clock, µs; 0: an older version did not note it
	why   string
}

// locks returns the locks that last still, by the limit's name; "" is the whole budget. alone:
// only those that the store has not heard of.
func (m *memory) locks(name string, alone bool) (found map[string]standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for limit, t := range m.of(name).Facts {
		if !t.Locked || alone && !t.Alone {
			continue
		}
		if boot, now, err := m.boot(); err == nil && t.Boot == boot && t.Until > now {
			if found == nil {
				found = map[string]standing{}
			}
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
