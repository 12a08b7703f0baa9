package outage

import (
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
			r.pass(sure{one.ID, one.At, one.Changes})
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

// charges reports whether the host has charged to a budget itself.
func (m *memory) charges(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).Charges
}
