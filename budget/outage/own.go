package outage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// stretch is what the host charged itself from one of its charges to another.
type stretch struct {
	ID   string `json:"id"`   // of the last one
	From int64  `json:"from"` // when the first one was made, µs on the store's clock
	At   int64  `json:"at"`   // when the last one was
	// Amounts are what they come to, by the limit's name, in what that counts.
	Amounts map[string]int64 `json:"amounts"`
	// Ledger is the id of the one that they were charged to; empty: an older version did
	// not note it.
	Ledger string `json:"ledger,omitempty"`
}

// reserved is a reservation of this process that it has not seen the end of.
type reserved struct {
	until   int64 // its lease's end, µs on the store's clock
	units   int64
	inUnits []string // the limits that count its units
	inCalls []string // the limits that count it as a call
}

// amounts are what it comes to in each limit.
func (r reserved) amounts(units int64) map[string]int64 {
	list := map[string]int64{}
	for _, name := range r.inUnits {
		list[name] = units
	}
	for _, name := range r.inCalls {
		list[name] = 1
	}
	return list
}

// maxReserved is how many reservations a process knows of each budget at most.
const maxReserved = 4096

// charged takes in what the host charged itself. A reservation counts once it has
// ended: what it came to is not known before.
func (r *remembered) charged(ledger string, limits []budget.Limit, item budget.Item, d budget.Decision) {
	one := reserved{until: d.At + item.Lease, units: d.Units}
	for _, l := range limits {
		switch {
		case !l.Covers(item.Operation) || l.Window.Kind == budget.Bucket || l.Window.Kind == budget.Concurrent:
			continue
		case l.Counts == budget.CountCalls:
			one.inCalls = append(one.inCalls, l.Name)
		default:
			one.inUnits = append(one.inUnits, l.Name)
		}
		if held := l.Longest(); held > r.Held {
			r.Held, r.dirty = held, true
		}
	}
	if item.Lease > 0 && len(r.reserved) < maxReserved {
		if r.reserved == nil {
			r.reserved = map[string]reserved{}
		}
		r.reserved[item.ID] = one
		return
	}
	r.spent(ledger, item.ID, d.At, one.amounts(d.Units))
}

// spent notes a charge that has its amount, to be written down.
func (r *remembered) spent(ledger, id string, at int64, amounts map[string]int64) {
	r.fresh, r.dirty = append(r.fresh, stretch{ID: id, From: at, At: at, Amounts: amounts, Ledger: ledger}), true
	if n := len(r.fresh); n >= maxFresh && n%maxFresh == 0 {
		r.fresh = thin(r.fresh, r.Held)
	}
}

// maxFresh is of how many charges apart a process knows between two writes.
const maxFresh = 256

// ended takes in that a reservation was settled, or its lease is over. One that
// another process made is not known here.
func (m *memory) ended(name string, f budget.Finish, done budget.Finished) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	one, known := r.reserved[f.ID]
	if !known {
		return
	}
	switch done.Result {
	case budget.Settled:
		r.spent(r.Mark.Ledger, f.ID, done.At, one.amounts(f.Units))
	case budget.FinishExpired: // it stays as reserved
		r.spent(r.Mark.Ledger, f.ID, one.until, one.amounts(one.units))
	case budget.Released:
	default:
		return
	}
	delete(r.reserved, f.ID)
	if err := m.saveSoon(name, r); err != nil {
		m.warn(name, err)
	}
}

// expire takes in the reservations whose lease was over at an instant: their units
// stay as reserved.
func (r *remembered) expire(now int64) {
	for id, one := range r.reserved {
		if one.until <= now {
			r.spent(r.Mark.Ledger, id, one.until, one.amounts(one.units))
			delete(r.reserved, id)
		}
	}
}

// keptApart is how many of the newest charges are kept apart.
const keptApart = 64

// finestStretch is how long a stretch of others may be however new it is, in µs.
const finestStretch = int64(time.Second / time.Microsecond)

// stretchAge is by how much the age of a stretch is more than its length at least.
const stretchAge = 16

// thin joins neighbours where they are short beside their age, and forgets those that
// no window counts any more. So there are few, and the newest are exact.
func thin(list []stretch, held int64) []stretch {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b stretch) int { return cmp.Compare(b.At, a.At) }) // the newest first
	newest := list[0].At
	var kept []stretch
	for _, s := range list {
		if s.At <= newest-held {
			break
		}
		if n := len(kept) - 1; n >= keptApart && kept[n].Ledger == s.Ledger && kept[n].At-s.From <= max(finestStretch, (newest-kept[n].At)/stretchAge) {
			sum := maps.Clone(kept[n].Amounts)
			for name, amount := range s.Amounts {
				sum[name] += amount
			}
			kept[n].Amounts, kept[n].From = sum, min(kept[n].From, s.From)
			continue
		}
		kept = append(kept, s)
	}
	slices.Reverse(kept)
	return kept
}

// own are the stretches of the host's own charges, the oldest first, but for those that
// the ledger of now has acknowledged itself; and which of them lie in a gap.
func (m *memory) own(name string) (list []stretch, inGap func(stretch) (gap, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	// Processes that notice a loss together each report what the others had written.
	if err := m.saveOwn(name, r, true); err != nil {
		m.warn(name, err)
	}
	gaps := slices.Clone(r.Gaps)
	list = slices.DeleteFunc(thin(slices.Concat(r.Own, r.fresh), r.Held), func(s stretch) bool {
		return s.Ledger != "" && s.Ledger == r.Mark.Ledger && r.live(s.Ledger)
	})
	return list, func(s stretch) (gap, bool) {
		i := slices.IndexFunc(gaps, func(g gap) bool { return g.holds(s) })
		if i < 0 {
			return gap{}, false
		}
		return gaps[i], true
	}
}

// used is what each limit has used on the ledger that is there now, as far as the host
// knows: another process may have seen more used before the loss, and recorded that.
func (m *memory) used(name string) map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[string]int64{}
	for limit, u := range m.of(name).Limits {
		list[limit] = u.Used
	}
	return list
}

// gap is a time of which a ledger had lost the host's charges, and was told of them: their
// ids are in none.
type gap struct {
	From int64 `json:"from"` // µs on the store's clock
	To   int64 `json:"to"`
	// ID is the one under which the ledger was told; empty: an older version did not note
	// it. Processes that know of different charges go by the first one's.
	ID string `json:"id,omitempty"`
}

// holds reports whether a stretch lies in the gap.
func (g gap) holds(s stretch) bool { return s.At >= g.From && s.At <= g.To }

// maxGaps is how many of them are kept.
const maxGaps = 64

// lacked notes that the store was told of charges that it lacked.
func (r *remembered) lacked(g gap) {
	if slices.Contains(r.Gaps, g) {
		return
	}
	gaps := append(slices.Clone(r.Gaps), g)
	slices.SortFunc(gaps, func(a, b gap) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	r.Gaps, r.dirty = gaps[max(0, len(gaps)-maxGaps):], true
}

// lacked notes it in the directory too.
func (m *memory) lacked(name string, own lacking) error {
	if len(own.stretches) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	r.lacked(gap{own.stretches[0].From, own.stretches[len(own.stretches)-1].At, own.id})
	err := m.save(name, r)
	r.saved = 0 // as after a recovery, which this is part of
	return err
}

// lacking is what the host charged itself and the ledger lacks.
type lacking struct {
	stretches []stretch
	id        string
	used      map[string]int64 // what the host knows to be used since, by limit
}

// exceeds reports whether it is more of some limit than it was before.
func (l lacking) exceeds(before lacking) bool {
	sum := func(l lacking) map[string]int64 {
		list := map[string]int64{}
		for _, one := range l.stretches {
			for name, amount := range one.Amounts {
				list[name] += amount
			}
		}
		return list
	}
	was := sum(before)
	for name, amount := range sum(l) {
		if amount > was[name] {
			return true
		}
	}
	return false
}

// lacks asks the store up to which of its own charges it has them: a split or a
// snapshot takes away the newest, a flush all. Those that are in a gap are in no ledger
// but one that was put back.
func (s *Store) lacks(ctx context.Context, name string, now int64, limits []budget.Limit) (lacking, error) {
	host := s.host()
	list, inGap := s.memory.own(name)
	if host == "" || len(list) == 0 {
		return lacking{}, nil
	}
	var failed error
	gone := func(i int) bool {
		if failed != nil {
			return true
		}
		look := budget.Look{Budget: name, Now: now, Limits: limits, Mark: budget.Mark{ID: list[i].ID, At: list[i].At}}
		_, err := s.inner.Look(ctx, look)
		if err != nil && !errors.Is(err, budget.ErrLost) {
			failed = err
		}
		return err != nil
	}
	var others, inGaps []int
	for i := range list {
		if _, in := inGap(list[i]); in {
			inGaps = append(inGaps, i)
		} else {
			others = append(others, i)
		}
	}
	from := 0 // of those that are lacking
	if n := sort.Search(len(others), func(n int) bool { return gone(others[n]) }); n > 0 {
		from = others[n-1] + 1
	}
	if n := len(inGaps); n > 0 && inGaps[n-1] >= from && !gone(inGaps[n-1]) {
		from = inGaps[n-1] + 1
	}
	last := ""
	if from > 0 {
		last = list[from-1].ID
	}
	sum := sha256.Sum256([]byte(last))
	own := lacking{list[from:], host + "-" + hex.EncodeToString(sum[:hostBytes]), s.memory.used(name)}
	for _, one := range own.stretches {
		if g, in := inGap(one); in && g.ID != "" { // another process has told of it already
			own.id = g.ID
			break
		}
	}
	return own, failed
}

// tell adds it to a recovery. A host has seen what it charged itself: more than it has
// seen used there was another reset, or a window's end within a stretch.
func (l lacking) tell(r *budget.Recovery) {
	if len(l.stretches) == 0 {
		return
	}
	r.OwnID, r.Own = l.id, make([]int64, len(r.Limits))
	for i, limit := range r.Limits {
		if limit.Window.Kind == budget.Bucket || limit.Window.Kind == budget.Concurrent {
			continue
		}
		cut := limit.Window.Cut(r.At)
		for _, one := range l.stretches {
			if one.At > cut {
				r.Own[i] += one.Amounts[limit.Name]
			}
		}
		r.Own[i] = max(0, min(r.Own[i], max(r.Used[i], l.used[limit.Name])))
	}
}

// ownFile holds the host's own charges. It is written under the lock alone, unlike what
// any process may write that looked.
func (m *memory) ownFile(budget string) string { return filepath.Join(m.dir, "own", fileName(budget)) }

// loadOwn is what lies in it; nothing when that cannot be read.
func (m *memory) loadOwn(name string) (list []stretch) {
	if data, err := os.ReadFile(m.ownFile(name)); err != nil || json.Unmarshal(data, &list) != nil {
		return nil
	}
	return list
}

// saveOwn takes over what lies in the directory, and adds what this process charged
// unless another one is writing, which it waits for a little where it is patient: then
// it keeps that for the next time. Under the lock, so that who has recovered a loss
// finds here what those that did not know of it had charged.
func (m *memory) saveOwn(name string, r *remembered, patient bool) error {
	unlock, ok := func() {}, false
	if patient && !m.closed || len(r.fresh) > 0 {
		if release, got := m.lockFile(patient); got {
			unlock, ok = release, true
		}
	}
	defer unlock()
	m.reread(name, r)
	if len(r.fresh) == 0 || !ok && !m.closed {
		return nil
	}
	own := thin(slices.Concat(m.loadOwn(name), r.fresh), r.Held)
	data, err := json.Marshal(own)
	if err == nil {
		_, err = makeDir(m.dir, "own")
	}
	if err == nil {
		err = writeFile(m.ownFile(name), data, false)
	}
	if err == nil {
		r.Own, r.fresh = own, nil
	}
	return err
}

// ownPatience is for how long a process waits for others that write where it must not
// put off its own write.
const ownPatience = 100 * time.Millisecond

// lockFile keeps the host's other processes from writing what it remembers, until
// unlock: what they add to the host's own charges must not be lost. It does not wait
// for long, as a process that has it may be stopped.
func (m *memory) lockFile(patient bool) (unlock func(), ok bool) {
	if _, err := makeDir(m.dir); err != nil {
		return nil, false
	}
	file, err := os.OpenFile(filepath.Join(m.dir, "memory.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false
	}
	for end := time.Now().Add(ownPatience); ; {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, true
		}
		if !patient || !time.Now().Before(end) {
			_ = file.Close()
			return nil, false
		}
		<-time.After(time.Millisecond)
	}
}
