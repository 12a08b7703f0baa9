package outage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// stretch is what the host charged itself from one of its charges to another.
type stretch struct {
	ID   string `json:"id"`   // of the last one
	From int64  `json:"from"` // when the first one was made, µs on the store's clock
	At   int64  `json:"at"`   // when the last one was
	// Amounts are what they come to, by the limit's name, in what that counts.
	Amounts map[string]int64 `json:"amounts"`
	// Ledger is the id of the one that they were charged to, By names the process that
	// charged them; empty: several did.
	Ledger string `json:"ledger,omitempty"`
	By     string `json:"by,omitempty"`
	// Lacked: the ledger did not hold them when the host last asked.
	Lacked bool `json:"lacked,omitempty"`
	joined bool // it is none of those that are kept apart
}

// reserved is a reservation of this process that it has not seen the end of.
type reserved struct {
	ledger  string // that it was charged to
	until   int64  // its lease's end, µs on the store's clock
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
func (r *remembered) charged(ledger string, limits []limit.Limit, item driver.Item, d driver.Decision) {
	one := reserved{ledger: ledger, until: d.At + item.Lease, units: d.Units}
	for _, l := range limits {
		switch {
		case !l.Covers(item.Operation) || l.Window.Kind == limit.Bucket || l.Window.Kind == limit.Concurrent:
			continue
		case l.Counts == limit.CountCalls:
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
	r.fresh, r.dirty = append(r.fresh, stretch{ID: id, From: at, At: at, Amounts: amounts, Ledger: ledger, By: r.by}), true
	if n := len(r.fresh); n >= maxFresh && n%maxFresh == 0 {
		r.fresh = thin(r.fresh, r.Held)
	}
}

// maxFresh is of how many charges apart a process knows between two writes.
const maxFresh = 256

// ended takes in that a reservation was settled, or its lease is over. One that
// another process made is not known here.
func (m *memory) ended(name string, f driver.Finish, done driver.Finished) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	one, known := r.reserved[f.ID]
	if !known {
		return
	}
	switch done.Result {
	case driver.Settled:
		r.spent(one.ledger, f.ID, done.At, one.amounts(f.Units))
	case driver.FinishExpired: // it stays as reserved
		r.spent(one.ledger, f.ID, one.until, one.amounts(one.units))
	case driver.Released:
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
			r.spent(one.ledger, id, one.until, one.amounts(one.units))
			delete(r.reserved, id)
		}
	}
}

// keptApart is how many of the newest charges are kept apart, to each of the keptLedgers
// charged to last: of what a loss takes they are the newest, or were.
const (
	keptApart   = 64
	keptLedgers = 8
)

// finestStretch is how long a stretch of others may be however new it is, in µs.
const finestStretch = int64(time.Second / time.Microsecond)

// stretchAge is by how much the age of a stretch is more than its length at least.
const stretchAge = 16

// settled is the age in µs up to which charges of several processes are not joined: one
// may have charged what a loss took and another, after it, what it did not. By then a
// process that charges has found out.
const settled = int64(2 * saveEvery / time.Microsecond)

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
	apart := map[string]int{} // by ledger
	for _, s := range list {
		if s.At <= newest-held {
			break
		}
		if n, known := apart[s.Ledger]; n < keptApart && (known || len(apart) < keptLedgers) {
			apart[s.Ledger], s.joined = n+1, false
			kept = append(kept, s)
			continue
		}
		if n := len(kept) - 1; n >= 0 && kept[n].joins(s, newest) {
			kept[n] = kept[n].join(s)
			continue
		}
		s.joined = true
		kept = append(kept, s)
	}
	slices.Reverse(kept)
	return kept
}

// joins reports whether an older stretch may become part of this one.
func (s stretch) joins(older stretch, newest int64) bool {
	age := newest - s.At
	return s.joined && s.Ledger == older.Ledger && s.Lacked == older.Lacked && s.At-older.From <= max(finestStretch, age/stretchAge) &&
		(s.By == older.By || age >= settled)
}

// join is both.
func (s stretch) join(older stretch) stretch {
	sum := maps.Clone(s.Amounts)
	for name, amount := range older.Amounts {
		sum[name] += amount
	}
	s.Amounts, s.From = sum, min(s.From, older.From)
	if s.By != older.By {
		s.By = ""
	}
	return s
}

// own are the stretches of the host's own charges: what is reserved counts as it is.
func (m *memory) own(name string) []stretch {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	// Processes that notice a loss together each report what the others had written.
	if err := m.saveOwn(name, r, true); err != nil {
		m.warn(name, err)
	}
	list := slices.Concat(m.loadOwn(name), r.fresh)
	for id, one := range r.reserved {
		list = append(list, stretch{ID: id, From: one.until, At: one.until, Amounts: one.amounts(one.units)})
	}
	return list
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

// lacks are those of the host's own charges that the store does not hold: a split or a
// snapshot takes away the newest, a flush all.
func (s *Store) lacks(ctx context.Context, name string, now int64, limits []limit.Limit) (list []stretch, err error) {
	if s.host() == "" {
		return nil, nil
	}
	own := s.memory.own(name)
	for part := range slices.Chunk(own, driver.MaxOthers) {
		look := driver.Look{Budget: name, Now: now, Limits: limits}
		for _, one := range part {
			look.Others = append(look.Others, driver.Mark{ID: one.ID, At: one.At})
		}
		view, err := s.inner.Look(ctx, look)
		if err != nil {
			return nil, err
		}
		for _, one := range part {
			if one.Lacked = slices.Contains(view.Missing, one.ID); one.Lacked {
				list = append(list, one)
			}
		}
	}
	s.memory.asked(name, own, list)
	return list, nil
}

// asked notes which of the host's charges the store holds, to be written down.
func (m *memory) asked(name string, own, lacking []stretch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	r.asked = map[string]bool{}
	for _, one := range own {
		r.asked[one.ID] = false
	}
	for _, one := range lacking {
		r.asked[one.ID] = true
	}
}

// charged is what stretches come to after an instant, in what a limit counts.
func charged(list []stretch, limit string, after int64) (sum int64) {
	for _, one := range list {
		if one.At > after {
			sum += one.Amounts[limit]
		}
	}
	return sum
}

// exceeds reports whether stretches come to more of some limit than others.
func exceeds(list, others []stretch, limits []limit.Limit) bool {
	return slices.ContainsFunc(limits, func(l limit.Limit) bool { return charged(list, l.Name, 0) > charged(others, l.Name, 0) })
}

// tell adds to a recovery what the host charged itself and the ledger lacks. It has seen
// that: more than it has seen used there was another reset, or a window's end within a
// stretch. All of a host's processes tell all of it, under the host's id.
func (s *Store) tell(r *driver.Recovery, lacking []stretch) {
	if len(lacking) == 0 {
		return
	}
	used := s.memory.used(r.Budget)
	r.OwnID, r.Own = s.host(), make([]int64, len(r.Limits))
	for i, l := range r.Limits {
		if l.Window.Kind != limit.Bucket && l.Window.Kind != limit.Concurrent {
			r.Own[i] = min(charged(lacking, l.Name, l.Window.Cut(r.At)), max(r.Used[i], used[l.Name]))
		}
	}
}
