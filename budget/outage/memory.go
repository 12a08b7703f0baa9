package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// saveEvery is how often what is remembered of a budget is written at most.
const saveEvery = time.Second

// memory is what the store last said of each budget. A process keeps its own and
// writes it down at most once a second; what lies in the directory is the newest
// of all the host's processes.
type memory struct {
	dir  string
	boot func() (string, int64, error)
	warn func(budget string, err error) // hears of what could not be written later

	mu      sync.Mutex // guards all below
	budgets map[string]*remembered
	closed  bool
}

// remembered is what is known of one budget.
type remembered struct {
	// Newest is the newest charge that was seen acknowledged.
	Newest budget.Acknowledged `json:"newest"`
	// Limits are what each limit had used.
	Limits map[string]usage `json:"limits"`
	// Missed is the last charge that was missed: no other process's memory brings
	// it back.
	Missed budget.Acknowledged `json:"missed"`
	// Told is what the store last said of a limit on its own: that it is
	// exhausted or locked, and until when, or that it is not. The empty name
	// stands for the whole budget.
	Told map[string]told `json:"told,omitempty"`

	saved time.Time
	dirty bool
	timer *time.Timer // writes what was put off; nil when nothing was
}

type usage struct {
	Used int64 `json:"used"`
	At   int64 `json:"at"` // µs on the store's clock
	// Lost is the charge that was missed when the limit was still to be recovered
	// for it, and Done the one for which it was.
	Lost budget.Acknowledged `json:"lost"`
	Done budget.Acknowledged `json:"done"`
}

// newer is the one of two processes' usages of a limit that counts: what is
// still to be recovered comes first, unless the other has recovered just that.
func (u usage) newer(other usage) usage {
	switch {
	case u.Lost.ID != "" && u.Lost.ID == other.Done.ID:
		return other
	case other.Lost.ID != "" && other.Lost.ID == u.Done.ID:
		return u
	case (u.Lost.ID != "") != (other.Lost.ID != ""):
		if u.Lost.ID != "" {
			return u
		}
		return other
	case other.At > u.At:
		return other
	}
	return u
}

type told struct {
	Boot  string `json:"boot"`
	At    int64  `json:"at"`    // µs since that boot
	Until int64  `json:"until"` // µs since that boot; 0 when it is not exhausted
	// Locked: it is so by a lock, for the reason Why.
	Locked bool   `json:"locked,omitempty"`
	Why    string `json:"why,omitempty"`
}

func (m *memory) file(budget string) string {
	return filepath.Join(m.dir, "memory", fileName(budget))
}

// of is what is remembered of a budget; m.mu is held.
func (m *memory) of(name string) *remembered {
	r := m.budgets[name]
	if r == nil {
		m.makeRoom()
		r = m.load(name)
		m.budgets[name] = r
	}
	return r
}

// maxRemembered is how many budgets a process remembers: those of a credential
// "*" have no end. One that was let go is read from the directory again.
const maxRemembered = 4096

// makeRoom lets go of budgets whose file has all of them; m.mu is held.
func (m *memory) makeRoom() {
	for name, r := range m.budgets { // whichever comes first
		if len(m.budgets) < maxRemembered {
			return
		}
		if !r.dirty && r.timer == nil {
			delete(m.budgets, name)
		}
	}
}

// load is what lies in the directory; nothing when that cannot be read.
func (m *memory) load(name string) *remembered {
	r := remembered{}
	if m.dir != "" {
		if data, err := os.ReadFile(m.file(name)); err != nil || json.Unmarshal(data, &r) != nil {
			r = remembered{}
		}
	}
	if r.Limits == nil {
		r.Limits = map[string]usage{}
	}
	if r.Told == nil {
		r.Told = map[string]told{}
	}
	return &r
}

// merge takes over what is newer in the other.
func (r *remembered) merge(other *remembered) {
	if other.Missed.At > r.Missed.At {
		r.Missed = other.Missed
	}
	if other.Newest.At > r.Newest.At {
		r.Newest = other.Newest
	}
	if r.Newest.ID == r.Missed.ID {
		r.Newest = budget.Acknowledged{}
	}
	for name, u := range other.Limits {
		r.Limits[name] = r.Limits[name].newer(u)
	}
	for name, t := range other.Told {
		if mine := r.Told[name]; t.Boot != mine.Boot || t.At > mine.At {
			r.Told[name] = t
		}
	}
}

// newest is the newest acknowledged charge of a budget.
func (m *memory) newest(name string) budget.Acknowledged {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).Newest
}

// saw takes in what the store decided.
func (m *memory) saw(batch budget.Batch, d budget.Decisions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(batch.Budget)
	for i, item := range batch.Items {
		switch {
		case item.DryRun, item.Recorded && d.Now-d.Items[i].At >= budget.MinHeld: // what was recorded so late may not be held
		case d.Items[i].Result == budget.Granted:
			if d.Items[i].At > r.Newest.At {
				r.Newest = budget.Acknowledged{ID: item.ID, At: d.Items[i].At}
				r.dirty = true
			}
			if item.Recorded || d.Items[i].Replayed { // no limit was asked, nor a lock
				continue
			}
			for _, l := range batch.Limits {
				if r.Told[l.Name].Until > 0 && l.Checks(item) && !l.Observe {
					m.tell(r, l.Name, told{}, 0)
				}
			}
			if r.Told[""].Until > 0 && !batch.Observe {
				m.tell(r, "", told{}, 0)
			}
		case d.Items[i].Result == budget.Refused && (item.Floor == 0 || d.Items[i].Locked):
			limit := ""
			if at := d.Items[i].Limit; at >= 0 {
				limit = batch.Limits[at].Name
			}
			m.tell(r, limit, told{Locked: d.Items[i].Locked, Why: d.Items[i].Why}, d.Items[i].RetryAt-d.Now)
		}
	}
	for i, used := range d.Used {
		name := batch.Limits[i].Name
		if u := r.Limits[name]; u.Lost.ID == "" && d.Seen > u.At {
			r.Limits[name] = usage{Used: used, At: d.Seen, Done: u.Done}
			r.dirty = true
		}
	}
	wait := saveEvery - time.Since(r.saved)
	if wait <= 0 {
		return m.save(batch.Budget, r)
	}
	if r.dirty && r.timer == nil && !m.closed {
		r.timer = time.AfterFunc(wait, func() { m.saveLater(batch.Budget, r) })
	}
	return nil
}

// saveLater writes what was put off.
func (m *memory) saveLater(name string, r *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.timer = nil
	if m.closed || m.budgets[name] != r {
		return
	}
	if err := m.save(name, r); err != nil {
		m.warn(name, err)
	}
}

// tell notes that a limit is exhausted or locked for a time in µs, or no longer.
func (m *memory) tell(r *remembered, limit string, t told, wait int64) {
	id, now, err := m.boot()
	if err != nil {
		return
	}
	t.Boot, t.At = id, now
	if wait > 0 {
		t.Until = now + wait
	}
	r.Told[limit], r.dirty = t, true
}

// locked notes a lock for a time in µs, or that there is none, and writes it
// down at once, for the host's other processes.
func (m *memory) locked(name, limit string, wait int64, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	if wait <= 0 && r.Told[limit].Until == 0 {
		return nil
	}
	m.tell(r, limit, told{Locked: wait > 0, Why: why}, wait)
	return m.save(name, r)
}

// refresh takes over what the host's other processes have been told.
func (m *memory) refresh(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).merge(m.load(name))
}

// refusedFor is for how many more µs a limit is exhausted or locked, as the store
// last said, and how; 0 when it is not known to be.
func (m *memory) refusedFor(name, limit string) (int64, told) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.of(name).Told[limit]
	if last.Until == 0 {
		return 0, told{}
	}
	id, now, err := m.boot()
	if err != nil || id != last.Boot || last.Until <= now {
		return 0, told{}
	}
	return last.Until - now, last
}

// miss notes that the store does not hold what it was asked for, and reports
// whether there is anything to recover from, or another call noted it already.
func (m *memory) miss(name string, asked budget.Acknowledged) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	if asked.ID != "" && r.Newest.ID != asked.ID {
		return r.Newest.ID != "" || r.Missed.ID == asked.ID
	}
	r.merge(m.load(name)) // another process may have seen more
	if r.Newest.ID == "" {
		return false
	}
	for limit, u := range r.Limits {
		if u.Lost.ID == "" {
			u.Lost = r.Newest
			r.Limits[limit] = u
		}
	}
	r.Missed, r.Newest, r.dirty = r.Newest, budget.Acknowledged{}, true
	return true
}

// lost lists the recoveries that are still to be made of the limits: one for
// each instant at which some of them were seen.
func (m *memory) lost(name string, limits []budget.Limit) (list []budget.Recovery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	for i, l := range limits {
		u := r.Limits[l.Name]
		if u.Lost.ID == "" {
			continue
		}
		at := slices.IndexFunc(list, func(one budget.Recovery) bool { return one.At == u.At && one.Newest == u.Lost })
		if at < 0 {
			at = len(list)
			one := budget.Recovery{Budget: name, Limits: limits, Used: make([]int64, len(limits)), At: u.At, Newest: u.Lost}
			for j := range one.Used {
				one.Used[j] = -1
			}
			list = append(list, one)
		}
		list[at].Used[i] = u.Used
	}
	return list
}

// recovered notes that a recovery was made.
func (m *memory) recovered(recovery budget.Recovery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(recovery.Budget)
	for i, l := range recovery.Limits {
		if u := r.Limits[l.Name]; recovery.Used[i] >= 0 && u.Lost == recovery.Newest {
			u.Lost, u.Done = budget.Acknowledged{}, recovery.Newest
			r.Limits[l.Name] = u
		}
	}
	r.dirty = true
	return m.save(recovery.Budget, r)
}

// forget forgets a budget, here and in the directory.
func (m *memory) forget(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.budgets[name]; r != nil && r.timer != nil {
		r.timer.Stop()
	}
	delete(m.budgets, name)
	if m.dir == "" {
		return nil
	}
	if err := os.Remove(m.file(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget what the host remembers of %s: %w", name, err)
	}
	return nil
}

// save writes what is remembered of a budget; m.mu is held. What another process
// wrote and is newer stays.
func (m *memory) save(name string, r *remembered) error {
	if !r.dirty || m.dir == "" {
		return nil
	}
	written := remembered{Newest: r.Newest, Missed: r.Missed, Limits: maps.Clone(r.Limits), Told: maps.Clone(r.Told)}
	written.merge(m.load(name))
	data, err := json.Marshal(written)
	if err == nil {
		_, err = makeDir(m.dir, "memory")
	}
	if err == nil {
		err = writeFile(m.file(name), data, false)
	}
	r.saved = time.Now()
	if err != nil {
		return fmt.Errorf("write down what the store said of %s: %w; make the host's directory writable, or name another with state_dir", name, err)
	}
	r.dirty = false
	return nil
}

// close writes all that is not written yet.
func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var errs []error
	for name, r := range m.budgets {
		if r.timer != nil {
			r.timer.Stop()
		}
		errs = append(errs, m.save(name, r))
	}
	return errors.Join(errs...)
}
