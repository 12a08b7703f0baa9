package outage

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// memory is the store's last answers on each budget. Each process keeps its own and
// writes it down at most once in saveEvery, merged with what the others wrote.
type memory struct {
	dir  string
	boot func() (string, int64, error)
	wall func() int64                   // µs
	warn func(budget string, err error) // called if a write fails that has no caller to return to
	// damaged sets aside a file of a budget whose content is not what this program writes.
	damaged func(budget, kind, path string, data []byte, why error)

	writer sync.Mutex // held by this process's writer of own/; locked before mu

	mu      sync.Mutex // guards all below
	budgets map[string]*remembered
	id      string // names this process in its stretches
	closed  atomic.Bool
	swept   int64          // when sweep was last called, µs by the wall clock
	sweeps  sync.WaitGroup // for those under way
}

// remembered is what the host knows of one budget.
type remembered struct {
	// Mark is the newest mark of the ledger.
	Mark driver.Mark `json:"newest"` // the name that older versions use
	// Gone are the ids of ledgers that have lost something, the newest last, at most
	// driver.MaxGone.
	Gone []string `json:"gone,omitempty"`
	// Limits is what each limit had used.
	Limits map[string]usage `json:"limits"`
	// Facts is whether each limit, by its name, is exhausted or locked, and until when,
	// by the store's last answer. The empty name is the whole budget.
	Facts map[string]facts `json:"told,omitempty"`
	// Charges: the host has charged to the budget itself. A host that only looks knows
	// no charge that others do not know.
	Charges bool `json:"charges,omitempty"`
	// AtWork is how many hosts were at work by the store's last answer, AtWorkAt the
	// time of that answer, µs by the wall clock.
	AtWork   int   `json:"at_work,omitempty"`
	AtWorkAt int64 `json:"at_work_at,omitempty"`
	// Crowd is the time of the last warning that more hosts are at work than
	// configured, µs by the wall clock.
	Crowd int64 `json:"crowd,omitempty"`

	// Held is the length of the longest window that the host knows, in µs.
	Held int64 `json:"held,omitempty"`

	// Doubts are the marks in doubt. Untold are the lost ledgers that this process charged
	// to and has not reported on: if another process of the host recovered one, it did not
	// know these charges. Only a process that ends writes these two, for the next one.
	Doubts []doubt `json:"doubts,omitempty"`
	// Past are marks that the history of Mark has, the newest last.
	Past   []sure          `json:"passed,omitempty"`
	Untold map[string]bool `json:"untold,omitempty"`
	file   driver.Mark     // the mark in the directory when it was last read or written
	by     string          // names this process in its stretches

	answers int           // of the store, to this process
	asks    []limit.Limit // those of its last question
	disk    *sync.Mutex   // held while the budget's files are written; locked before memory.mu
	fresh   []stretch     // this process's charges that are not in the file of the host's own charges yet
	writing []stretch     // those that are being written there
	// asked is whether the store was found to lack each of the host's charges, by id, until
	// that is written.
	asked    map[string]bool
	reserved map[string]reserved

	saved  int64 // when it was last written, µs by the wall clock
	unread bool  // the file of the host's own charges cannot be read
	warned bool  // the last write failed, and the caller of save has warned of it
	read   int64 // when the directory was last read, µs by the wall clock
	dirty  bool
	timer  *time.Timer // for a write that was put off, else nil
}

// facts is the last known state of a limit or of the whole budget.
type facts struct {
	Boot  string `json:"boot"`
	At    int64  `json:"at"`    // µs since that boot
	Until int64  `json:"until"` // µs since that boot; 0: neither exhausted nor locked
	// Locked: a lock closes it, for the reason Why, until End by the store's clock
	// (µs; 0: an older version did not note it).
	Locked bool   `json:"locked,omitempty"`
	End    int64  `json:"end,omitempty"`
	Why    string `json:"why,omitempty"`
	// Alone: the host made the lock while the store was out of reach, which is still to hear of it.
	Alone bool `json:"alone,omitempty"`
}

// of returns what the process remembers of a budget, loading it if needed; m.mu is held.
func (m *memory) of(name string) *remembered {
	r := m.budgets[name]
	if r == nil {
		m.makeRoom()
		r, _ = m.load(name) // the next write says what cannot be read
		if m.id == "" {
			m.id = rand.Text()[:8]
		}
		r.file, r.by = r.Mark, m.id
		m.budgets[name] = r
		m.repairOwn(name, r)
	}
	return r
}

// maxRemembered bounds the budgets that a process remembers: a credential "*" has any
// number of them. A dropped one is read from the directory again.
const maxRemembered = 4096

// makeRoom drops budgets that have nothing left to write; m.mu is held.
func (m *memory) makeRoom() {
	for name, r := range m.budgets {
		if len(m.budgets) < maxRemembered {
			return
		}
		if !r.dirty && r.timer == nil && len(r.Doubts) == 0 && r.disk.TryLock() {
			delete(m.budgets, name)
			r.disk.Unlock()
		}
	}
}

// saw takes in the store's answer to a batch.
func (m *memory) saw(batch driver.Batch, d driver.Decisions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(batch.Budget)
	var alike counting
	refused := r.refused()
	for i := range batch.Items {
		item := &batch.Items[i]
		switch {
		case item.DryRun, item.IsHold(): // neither a charge nor a call that others make
		case d.Items[i].Result == driver.Granted:
			if !r.Charges {
				r.Charges, r.dirty = true, true
			}
			if !d.Items[i].Replayed && m.dir != "" {
				r.charged(d.Mark.Ledger, batch.Limits, item, &d.Items[i], &alike)
			}
			if !refused || item.Recorded || d.Items[i].Replayed { // a recorded or replayed one was not checked against limits and locks
				continue
			}
			for _, l := range batch.Limits {
				if t := r.Facts[l.Name]; t.Until > 0 && !t.Alone && item.CheckedBy(l) && !l.Observe {
					m.note(r, l.Name, facts{}, 0)
				}
			}
			if t := r.Facts[""]; t.Until > 0 && !t.Alone && !batch.Observe {
				m.note(r, "", facts{}, 0)
			}
		case d.Items[i].Result == driver.Refused && !d.Items[i].Recovering && (item.Floor == 0 && !keeps(d.Items[i]) && !held(batch.Limits, *item, &d, i) || d.Items[i].Locked):
			limit := ""
			if at := d.Items[i].Limit; at >= 0 {
				limit = batch.Limits[at].Name
			}
			t, ends := facts{}, cmp.Or(d.Items[i].Ends, d.Items[i].RetryAt)
			if d.Items[i].Locked {
				t = facts{Locked: true, Why: d.Items[i].Why, End: ends}
			}
			m.note(r, limit, t, ends-d.Now)
			refused = true
		}
	}
	r.expire(d.Mark.Seen)
	r.learn(d.Mark, append(batch.Others, batch.Mark), batch.Limits, func(i int) (int64, bool) {
		if i >= len(d.Used) { // the store did not decide all items
			return 0, false
		}
		return d.Used[i], true
	})
	return m.saveSoon(batch.Budget, r)
}

// refused reports whether a limit, or the budget, was exhausted or locked when the store
// last refused a call.
func (r *remembered) refused() bool {
	for _, t := range r.Facts {
		if t.Until > 0 {
			return true
		}
	}
	return false
}

// looked takes in the store's answer to a look.
func (m *memory) looked(look driver.Look, view driver.View) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(look.Budget)
	r.expire(view.Mark.Seen)
	r.learn(view.Mark, append(look.Others, look.Mark), look.Limits, func(i int) (int64, bool) { return view.Limits[i].Used, true })
	m.lookedAtLocks(r, view)
	return m.saveSoon(look.Budget, r)
}

// lookedAtLocks takes in the locks of a look: a known lock that it does not show was
// ended by somebody. m.mu is held.
func (m *memory) lookedAtLocks(r *remembered, view driver.View) {
	stands := map[string]bool{}
	for _, lock := range view.Locks {
		if driver.IsFence(lock.Limit) {
			continue
		}
		stands[lock.Limit] = true
		if t := r.Facts[lock.Limit]; !t.Locked || t.End != lock.Until && (!t.Alone || t.End < lock.Until) {
			m.note(r, lock.Limit, facts{Locked: true, Why: lock.Why, End: lock.Until}, lock.Until-view.Now)
		}
	}
	for limit, t := range r.Facts {
		if t.Locked && !t.Alone && t.Until > 0 && !stands[limit] {
			m.note(r, limit, facts{}, 0)
		}
	}
}

// note notes that a limit is exhausted or locked for a time in µs; with wait 0, that it is
// neither.
func (m *memory) note(r *remembered, limit string, t facts, wait int64) {
	id, now, err := m.boot()
	if err != nil {
		return
	}
	t.Boot, t.At = id, now
	if wait > 0 {
		t.Until = now + wait
	}
	r.Facts[limit], r.dirty = t, true
}

// locked notes a lock from now to end by the store's clock, or with end 0 that the lock was
// removed. It writes that down at once, for the host's other processes. alone: the store is
// still to hear of it.
func (m *memory) locked(name, limit string, now, end int64, why string, alone bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	switch {
	case end > now:
		m.note(r, limit, facts{Locked: true, Why: why, End: end, Alone: alone}, end-now)
	case r.Facts[limit].Until == 0:
		return nil
	default:
		m.note(r, limit, facts{}, 0)
	}
	return m.save(name, r)
}

// refusedFor returns for how many more µs a limit is exhausted or locked, by the store's
// last answer, and the facts; 0 if it is not known to be either.
func (m *memory) refusedFor(name, limit string) (int64, facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.of(name).Facts[limit]
	if last.Until == 0 {
		return 0, facts{}
	}
	id, now, err := m.boot()
	if err != nil || id != last.Boot || last.Until <= now {
		return 0, facts{}
	}
	return last.Until - now, last
}

// forget forgets a budget, here and in the directory.
func (m *memory) forget(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.budgets[name]; r != nil {
		defer m.lockDisk(r)()
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	delete(m.budgets, name)
	if m.dir == "" {
		return nil
	}
	for _, path := range []string{m.file(name), m.ownFile(name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget what the host remembers of %s: %w", name, err)
		}
	}
	return nil
}

// keeps reports whether a refusal may be due to what is kept for shares: for others, the
// limit may not be exhausted.
func keeps(d driver.Decision) bool {
	return slices.ContainsFunc(d.Kept, func(kept int64) bool { return kept > 0 })
}

// held reports whether a refused item would fit the limit that refused it if no pass held
// units there.
func held(limits []limit.Limit, item driver.Item, d *driver.Decisions, i int) bool {
	at := d.Items[i].Limit
	return at >= 0 && at < len(d.Used) && limits[at].Window.Kind != limit.Bucket && d.Used[at]+item.Amount(limits[at]) <= limits[at].Bound(0, item.UseHeadroom)
}
