package outage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// saveEvery is the least time between two routine writes of what a process remembers of a
// budget.
const saveEvery = time.Second

func (m *memory) file(budget string) string {
	return filepath.Join(m.dir, "memory", fileName(budget))
}

// load reads a budget's file; an unreadable one counts as empty.
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
	if r.Mark.Ledger == "" && r.Mark.ID != "" { // written by an older version
		r.Mark.Ledger = unnamed
		for limit, u := range r.Limits {
			u.Ledger = unnamed
			r.Limits[limit] = u
		}
	}
	if r.Facts == nil {
		r.Facts = map[string]facts{}
	}
	return &r
}

// atWork returns how many hosts were at work on a budget, and when that was noted: by what
// the process remembers, else by what the directory has.
func (m *memory) atWork(name string) (n int, at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[name]
	if r == nil {
		r = m.load(name)
	}
	return r.AtWork, r.AtWorkAt
}

// saveSoon writes what the process remembers of a budget, now or, if it wrote less than
// saveEvery ago, later; m.mu is held.
func (m *memory) saveSoon(name string, r *remembered) error {
	ago := time.Duration(m.wall()-r.saved) * time.Microsecond
	wait := saveEvery - ago
	if wait <= 0 || ago < 0 {
		return m.save(name, r)
	}
	if r.dirty && r.timer == nil && !m.closed {
		r.timer = time.AfterFunc(wait, func() { m.saveLater(name, r) })
	}
	return nil
}

// writesNext has the store's next answer on a budget written at once.
func (m *memory) writesNext(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).saved = 0
}

// saveLater makes a write that was put off.
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

// refresh takes in what the host's other processes have learned.
func (m *memory) refresh(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reread(name, m.of(name))
}

// freshen is refresh at most once in saveEvery, which is how often the others write.
func (m *memory) freshen(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	if ago := m.wall() - r.read; ago < 0 || ago >= saveEvery.Microseconds() {
		m.reread(name, r)
	}
}

// reread merges what the directory has; m.mu is held.
func (m *memory) reread(name string, r *remembered) {
	r.merge(m.load(name))
	r.read = m.wall()
}

// save merges what another process wrote, and writes what the process remembers of a
// budget, unless nothing changed; m.mu is held.
func (m *memory) save(name string, r *remembered) error {
	if !r.dirty || m.dir == "" {
		return nil
	}
	err := m.saveOwn(name, r, m.closed)
	var data []byte
	if err == nil {
		data, err = json.Marshal(r.leave(m.closed))
	}
	if err == nil {
		_, err = makeDir(m.dir, "memory")
	}
	if err == nil {
		if err = writeFile(m.file(name), data, false); err != nil {
			err = fmt.Errorf("%w; make the host's directory writable, or name another with state_dir", err)
		}
	}
	r.saved, r.file = m.wall(), r.Mark
	if r.warned = err != nil; err != nil {
		return fmt.Errorf("write down the store's answers on %s: %w", name, err)
	}
	r.dirty = len(r.fresh) > 0
	return nil
}

// close writes everything that is not written yet. A failed write is warned of and is not
// an error: the charges themselves are in the store.
func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for name, r := range m.budgets {
		if r.timer != nil {
			r.timer.Stop()
		}
		r.dirty = r.dirty || len(r.Doubts) > 0 || len(r.Untold) > 0 // only the last write has these
		warned := r.warned
		if err := m.save(name, r); err != nil && !warned {
			m.warn(name, err)
		}
	}
}
