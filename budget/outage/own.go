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

// stretch is one charge of the host, or the sum of several neighbouring ones.
type stretch struct {
	ID   string `json:"id"`   // the last charge's id
	From int64  `json:"from"` // the first charge's time, µs on the store's clock
	At   int64  `json:"at"`   // the last charge's time, likewise
	// Amounts are the sums by the limit's name, in what the limit counts: units or calls.
	Amounts map[string]int64 `json:"amounts"`
	// Ledger is the id of the ledger that was charged. By names the process that charged;
	// empty: several did.
	Ledger string `json:"ledger,omitempty"`
	By     string `json:"by,omitempty"`
	// Lacked: the ledger did not hold the charges when the host last asked.
	Lacked bool `json:"lacked,omitempty"`
	joined bool // thin may join it with others: it is not kept apart
}

// reserved is an open reservation of this process.
type reserved struct {
	ledger  string // the ledger that was charged
	until   int64  // its lease's end, µs on the store's clock
	units   int64
	inUnits []string // the limits that count its units
	inCalls []string // the limits that count it as a call
}

// amounts returns what the reservation counts in each limit if it comes to so many units.
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

// maxReserved bounds the open reservations that a process tracks for each budget. Further
// ones count at once, as reserved.
const maxReserved = 4096

// counting is what the charges of one operation count in. Charges that follow each other
// are mostly alike, and then share it: nobody changes its lists or its amounts.
type counting struct {
	operation string // empty: not set yet
	in        reserved
	units     int64
	amounts   map[string]int64 // of units; nil: not made yet
}

// of returns what a charge of an operation counts in, with the operation's own lists.
func (c *counting) of(limits []limit.Limit, operation string) reserved {
	if c.operation == operation {
		return c.in
	}
	*c = counting{operation: operation}
	for i := range limits {
		l := &limits[i]
		switch {
		case !l.Covers(operation) || l.Window.Kind == limit.Bucket || l.Window.Kind == limit.Concurrent:
			continue
		case l.Counts == limit.CountCalls:
			c.in.inCalls = append(c.in.inCalls, l.Name)
		default:
			c.in.inUnits = append(c.in.inUnits, l.Name)
		}
	}
	return c.in
}

// sums returns what a charge of so many units counts in each limit.
func (c *counting) sums(units int64) map[string]int64 {
	if c.amounts == nil || c.units != units {
		c.units, c.amounts = units, c.in.amounts(units)
	}
	return c.amounts
}

// charged takes in a charge of this host. A reservation counts when it ends: its units are
// not known before.
func (r *remembered) charged(ledger string, limits []limit.Limit, item *driver.Item, d *driver.Decision, alike *counting) {
	one := alike.of(limits, item.Operation)
	if item.Lease > 0 && len(r.reserved) < maxReserved {
		if r.reserved == nil {
			r.reserved = map[string]reserved{}
		}
		one.ledger, one.until, one.units = ledger, d.At+item.Lease, d.Units
		r.reserved[item.ID] = one
		return
	}
	r.spent(ledger, item.ID, d.At, alike.sums(d.Units))
}

// spent notes a charge with its final amounts, to be written down.
func (r *remembered) spent(ledger, id string, at int64, amounts map[string]int64) {
	r.fresh, r.dirty = append(r.fresh, stretch{ID: id, From: at, At: at, Amounts: amounts, Ledger: ledger, By: r.by}), true
	if n := len(r.fresh); n >= maxFresh && n%maxFresh == 0 {
		r.fresh = thin(r.fresh, r.Held)
	}
}

// maxFresh is the number of charges after which a process thins those it has yet to write.
const maxFresh = 256

// ended takes in that a reservation was settled or released, or that its lease is over. It
// ignores reservations of other processes.
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
	case driver.FinishExpired: // its units stay as reserved
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

// expire takes in the reservations whose lease was over at now: their units stay as
// reserved.
func (r *remembered) expire(now int64) {
	for id, one := range r.reserved {
		if one.until <= now {
			r.spent(one.ledger, id, one.until, one.amounts(one.units))
			delete(r.reserved, id)
		}
	}
}

// thin keeps the newest keptApart charges separate, for each of the keptLedgers ledgers
// that were charged last: a loss takes the newest charges first.
const (
	keptApart   = 64
	keptLedgers = 8
)

// A joined stretch may be as long as its age divided by stretchAge, and always
// finestStretch, in µs.
const (
	finestStretch = int64(time.Second / time.Microsecond)
	stretchAge    = 16
)

// settled is the age in µs from which charges of different processes may be joined. Before
// it, one process may have made charges that a loss took, and another, after the loss,
// charges that the ledger holds. By then each process that charges has noticed the loss.
const settled = int64(2 * saveEvery / time.Microsecond)

// thin joins neighbouring stretches that are short compared with their age, and drops those
// that no window counts any more. Few stretches remain, and the newest are exact.
func thin(list []stretch, held int64) []stretch {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	if newestFirst := func(a, b stretch) int { return cmp.Compare(b.At, a.At) }; !slices.IsSortedFunc(list, newestFirst) {
		slices.SortStableFunc(list, newestFirst)
	}
	newest := list[0].At
	var kept []stretch
	sums := -1                // the last of kept that has a sum of its own, which may be added to
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
			kept[n] = kept[n].join(s, sums == n)
			sums = n
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

// join returns the sum of both. own: nobody else has the amounts of s, so they are added
// to.
func (s stretch) join(older stretch, own bool) stretch {
	sum := s.Amounts
	if !own {
		sum = maps.Clone(sum)
	}
	for name, amount := range older.Amounts {
		sum[name] += amount
	}
	s.Amounts, s.From = sum, min(s.From, older.From)
	if s.By != older.By {
		s.By = ""
	}
	return s
}

// own returns the host's own charges, and this process's open reservations as reserved.
func (m *memory) own(name string) []stretch {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	defer m.lockDisk(r)()
	// When several processes notice a loss at once, each reports what the others wrote.
	if err := m.saveOwn(name, r, true); err != nil {
		m.warn(name, err)
	}
	list, _, _, _ := m.loadOwn(name) // saveOwn has warned
	list = append(list, r.fresh...)
	for id, one := range r.reserved {
		list = append(list, stretch{ID: id, From: one.until, At: one.until, Amounts: one.amounts(one.units)})
	}
	return list
}

// used returns what each limit has used on the current ledger, as far as the host knows.
// That may be more than this process saw before a loss: another process may have seen more,
// and recorded it.
func (m *memory) used(name string) map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[string]int64{}
	for limit, u := range m.of(name).Limits {
		list[limit] = u.Used
	}
	return list
}

// lacks returns the host's own charges that the store does not hold: a split or a restored
// snapshot loses the newest, a flush all.
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

// charged sums what a limit counts of the stretches after an instant.
func charged(list []stretch, limit string, after int64) (sum int64) {
	for _, one := range list {
		if one.At > after {
			sum += one.Amounts[limit]
		}
	}
	return sum
}

// exceeds reports whether list sums to more than others in any of the limits.
func exceeds(list, others []stretch, limits []limit.Limit) bool {
	return slices.ContainsFunc(limits, func(l limit.Limit) bool { return charged(list, l.Name, 0) > charged(others, l.Name, 0) })
}

// tell adds to a recovery the host's own charges that the ledger lacks. They are capped at
// the most that the host has seen used: they exceed it only if a reset came between, or a
// window ended within a stretch. Each process of a host reports all of them, under the
// host's id.
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
