package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// saveEvery is the least time between two routine writes of what a process remembers of a
// budget.
const saveEvery = time.Second

func (m *memory) file(budget string) string {
	return filepath.Join(m.dir, "memory", fileName(budget))
}

// load reads a budget's file; nothing if it does not exist, or is damaged. On an error nobody
// knows what the file holds.
func (m *memory) load(name string) (r *remembered, err error) {
	if m.dir != "" {
		r, err = m.read(name)
	}
	if r == nil {
		r = &remembered{Limits: map[string]usage{}}
	}
	r.disk = &sync.Mutex{}
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
	return r, err
}

func (m *memory) read(name string) (r *remembered, err error) {
	data, err := readFile(m.file(name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what the host remembers of %s: %w", name, err)
	}
	if err = json.Unmarshal(data, &r); err == nil && (r == nil || r.Limits == nil) {
		err = errors.New("it does not hold what the store said")
	}
	if err != nil {
		m.damaged(name, "memory", m.file(name), data, err)
		return nil, nil
	}
	return r, nil
}

// saveSoon writes what the process remembers of a budget, now or, if it wrote less than
// saveEvery ago, later; m.mu is held, but not during the write.
func (m *memory) saveSoon(name string, r *remembered) error {
	ago := time.Duration(m.wall()-r.saved) * time.Microsecond
	wait := saveEvery - ago
	if wait <= 0 || ago < 0 {
		return m.save(name, r)
	}
	if r.dirty {
		m.putOff(name, r, wait)
	}
	return nil
}

// putOff has a write made later, unless one is; m.mu is held.
func (m *memory) putOff(name string, r *remembered, wait time.Duration) {
	if r.timer == nil && !m.closed.Load() {
		r.timer = time.AfterFunc(wait, func() { m.saveLater(name, r) })
	}
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
	if m.closed.Load() || m.budgets[name] != r {
		return
	}
	if err := m.saveWaiting(name, r, true); err != nil {
		m.warn(name, err)
	}
}

// refresh takes in what the host's other processes have learned.
func (m *memory) refresh(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.reread(name, m.of(name)) // the next write says what cannot be read
}

// freshen is refresh at most once in saveEvery, which is how often the others write.
func (m *memory) freshen(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name)
	if ago := m.wall() - r.read; ago < 0 || ago >= saveEvery.Microseconds() {
		_ = m.reread(name, r) // the next write says what cannot be read
	}
}

// reread merges what the directory has; m.mu is held.
func (m *memory) reread(name string, r *remembered) error {
	other, err := m.load(name)
	r.merge(other)
	r.read = m.wall()
	return err
}

// lockDisk keeps this process's other writers from a budget's files until unlock. m.mu is
// held, and released while lockDisk waits.
func (m *memory) lockDisk(r *remembered) (unlock func()) {
	m.mu.Unlock()
	r.disk.Lock()
	m.mu.Lock()
	return r.disk.Unlock
}

// write writes a file of the directory. m.mu is held, and released meanwhile: no decision
// waits for the disk.
func (m *memory) write(path string, data []byte) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	if _, err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := writeFile(path, data); err != nil {
		return fmt.Errorf("%w; make the host's directory writable, or name another with state_dir", err)
	}
	return nil
}

// save merges what another process wrote, and writes what the process remembers of a
// budget, unless nothing changed; m.mu is held, but not during the write.
func (m *memory) save(name string, r *remembered) error {
	return m.saveWaiting(name, r, m.closed.Load())
}

// saveWaiting is save; patient: it waits for other writers of the host's own charges.
func (m *memory) saveWaiting(name string, r *remembered, patient bool) error {
	defer m.lockDisk(r)()
	if !r.dirty || m.dir == "" {
		return nil
	}
	if now := m.wall(); m.swept == 0 || now-m.swept >= sweepEvery.Microseconds() {
		m.swept = now
		m.sweeps.Go(m.sweep)
	}
	r.saved = m.wall()
	err := m.saveOwn(name, r, patient)
	var data []byte
	if err == nil {
		r.dirty = false
		data, err = json.Marshal(r.leave(m.closed.Load()))
	}
	if err == nil {
		r.file = r.Mark
		err = m.write(m.file(name), data)
	}
	if r.warned = err != nil; err != nil {
		r.dirty = true
		return fmt.Errorf("write down the store's answers on %s: %w", name, err)
	}
	if r.dirty = r.dirty || len(r.fresh) > 0; r.dirty {
		m.putOff(name, r, saveEvery)
	}
	return nil
}

// close writes everything that is not written yet. A failed write is warned of and is not
// an error: the charges themselves are in the store.
func (m *memory) close() {
	defer m.sweeps.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed.Store(true)
	for name, r := range maps.Clone(m.budgets) {
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
