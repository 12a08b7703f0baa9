package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

	mu      sync.Mutex // guards all below
	budgets map[string]*remembered
}

// remembered is what is known of one budget.
type remembered struct {
	// Newest is the newest charge that was seen acknowledged.
	Newest budget.Acknowledged `json:"newest"`
	// Limits are what each limit had used.
	Limits map[string]usage `json:"limits"`
	// Lost is the newest charge when it was missed, while limits are still to be
	// recovered for it.
	Lost budget.Acknowledged `json:"lost"`
	// Missed is the id of the last charge that was missed: no other process's
	// memory brings it back.
	Missed string `json:"missed,omitempty"`
	// Refused tells until when a limit is exhausted, as the store last said.
	Refused map[string]refusal `json:"refused,omitempty"`

	saved time.Time
	dirty bool
}

type usage struct {
	Used int64 `json:"used"`
	At   int64 `json:"at"`             // µs on the store's clock
	Lost bool  `json:"lost,omitempty"` // still to be recovered
}

type refusal struct {
	Boot  string `json:"boot"`
	Until int64  `json:"until"` // µs since that boot
}

func (m *memory) file(budget string) string {
	return filepath.Join(m.dir, "memory", fileName(budget))
}

// of is what is remembered of a budget; m.mu is held.
func (m *memory) of(name string) *remembered {
	r := m.budgets[name]
	if r == nil {
		r = &remembered{Limits: map[string]usage{}, Refused: map[string]refusal{}}
		r.merge(m.load(name))
		m.budgets[name] = r
	}
	return r
}

// load is what lies in the directory; nil for nothing, or nothing that can be
// read.
func (m *memory) load(name string) *remembered {
	var r remembered
	if m.dir == "" {
		return nil
	}
	data, err := os.ReadFile(m.file(name))
	if err != nil || json.Unmarshal(data, &r) != nil {
		return nil
	}
	return &r
}

// merge takes over what is newer in the other.
func (r *remembered) merge(other *remembered) {
	if other == nil {
		return
	}
	if other.Missed != "" && r.Missed == "" {
		r.Missed = other.Missed
	}
	if other.Newest.At > r.Newest.At && other.Newest.ID != r.Missed {
		r.Newest = other.Newest
	}
	if other.Lost.At > r.Lost.At && other.Lost.ID != r.Missed {
		r.Lost = other.Lost
	}
	for name, u := range other.Limits {
		if u.At > r.Limits[name].At {
			r.Limits[name] = u
		}
	}
	for name, u := range other.Refused {
		if u.Boot != r.Refused[name].Boot || u.Until > r.Refused[name].Until {
			r.Refused[name] = u
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
			for _, l := range batch.Limits {
				if len(r.Refused) > 0 && l.Checks(item) {
					delete(r.Refused, l.Name)
				}
			}
		case d.Items[i].Result == budget.Refused && item.Floor == 0:
			m.refused(r, batch.Limits[d.Items[i].Limit].Name, d.Items[i].RetryAt-d.Now)
		}
	}
	for i, used := range d.Used {
		if name := batch.Limits[i].Name; d.Seen > r.Limits[name].At {
			r.Limits[name] = usage{Used: used, At: d.Seen}
			r.dirty = true
		}
	}
	if time.Since(r.saved) < saveEvery {
		return nil
	}
	return m.save(batch.Budget, r)
}

// refused notes that a limit is exhausted for a time in µs.
func (m *memory) refused(r *remembered, limit string, wait int64) {
	if id, now, err := m.boot(); err == nil {
		r.Refused[limit] = refusal{Boot: id, Until: now + wait}
		r.dirty = true
	}
}

// refusedFor is for how many more µs a limit is exhausted, as the store last
// said; 0 when it is not known to be.
func (m *memory) refusedFor(name, limit string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused, known := m.of(name).Refused[limit]
	if !known {
		return 0
	}
	id, now, err := m.boot()
	if err != nil || id != refused.Boot {
		return 0
	}
	return max(0, refused.Until-now)
}

// miss notes that the store has lost what was acknowledged, and reports whether
// there is anything to recover from.
func (m *memory) miss(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	r.merge(m.load(name)) // another process may have seen more
	if r.Newest.ID == "" {
		return false
	}
	r.Lost, r.Missed, r.Newest, r.dirty = r.Newest, r.Newest.ID, budget.Acknowledged{}, true
	for limit, u := range r.Limits {
		u.Lost = true
		r.Limits[limit] = u
	}
	return true
}

// lost lists the recoveries that are still to be made of the limits: one for
// each instant at which some of them were seen.
func (m *memory) lost(name string, limits []budget.Limit) (list []budget.Recovery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	if r.Lost.ID == "" {
		return nil
	}
	for i, l := range limits {
		u := r.Limits[l.Name]
		if !u.Lost {
			continue
		}
		at := -1
		for j := range list {
			if list[j].At == u.At {
				at = j
			}
		}
		if at < 0 {
			at = len(list)
			one := budget.Recovery{Budget: name, Limits: limits, Used: make([]int64, len(limits)), At: u.At, Newest: r.Lost}
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
		if u := r.Limits[l.Name]; recovery.Used[i] >= 0 && u.At == recovery.At {
			u.Lost = false
			r.Limits[l.Name] = u
		}
	}
	left := false
	for _, u := range r.Limits {
		left = left || u.Lost
	}
	if !left {
		r.Lost = budget.Acknowledged{}
	}
	r.dirty = true
	return m.save(recovery.Budget, r)
}

// forget forgets a budget, here and in the directory.
func (m *memory) forget(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	written := remembered{Newest: r.Newest, Lost: r.Lost, Missed: r.Missed, Limits: maps.Clone(r.Limits), Refused: maps.Clone(r.Refused)}
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

// flush writes all that is not written yet.
func (m *memory) flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for name, r := range m.budgets {
		errs = append(errs, m.save(name, r))
	}
	return errors.Join(errs...)
}
