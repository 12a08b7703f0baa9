package outage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// ownFile is the file of the host's own charges: one stretch a line, as JSON, after a line
// with an ownHead. Processes rewrite it, with what thin leaves, only under the lock, unlike
// the file in memory/, which any process may write that looked.
func (m *memory) ownFile(budget string) string { return filepath.Join(m.dir, "own", fileName(budget)) }

// ownHead says how many stretches follow at least: a file that was cut off has fewer. Older
// versions write none.
type ownHead struct {
	Lines int `json:"lines"`
}

// loadOwn reads the file. If it is damaged, loadOwn returns why, and the lines that it can
// read. On an error nobody knows what the file holds.
func (m *memory) loadOwn(name string) (list []stretch, data []byte, why, err error) {
	data, err = readFile(m.ownFile(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // mostly there is none yet
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read what the host charged to %s: %w", name, err)
	}
	known, head := map[string]bool{}, ownHead{}
	for line := range bytes.Lines(data) {
		var one struct {
			ownHead
			stretch
		}
		err := json.Unmarshal(line, &one)
		switch {
		case len(bytes.TrimSpace(line)) == 0:
		case err == nil && one.Lines > 0:
			head = one.ownHead
		case err == nil && one.ID != "":
			if !known[one.ID] {
				list = append(list, one.stretch)
			}
			known[one.ID] = true
		default:
			why = fmt.Errorf("it has a line that is not a charge of this host: %w", cmp.Or(err, io.ErrUnexpectedEOF))
		}
	}
	if len(list) < max(head.Lines, 1) {
		why = fmt.Errorf("it has %d of its %d lines", len(list), head.Lines)
	}
	return list, data, why, nil
}

// repairOwn replaces the file if it is damaged by what can be read of it.
func (m *memory) repairOwn(name string, r *remembered) {
	if _, _, why, _ := m.loadOwn(name); why == nil { // the next write says what cannot be read
		return
	}
	if unlock, ok := m.lockFile(true); ok {
		defer unlock()
		if err := m.rewriteOwn(name, r); err != nil {
			m.warn(name, err)
		}
	}
}

// saveOwn merges what the directory has, and adds this process's charges to the file. If
// another process is writing, it keeps them for the next time; a patient caller first
// waits for ownPatience. It merges under the lock, so that a process that has recovered a
// loss finds here what processes that did not know of the loss had charged.
func (m *memory) saveOwn(name string, r *remembered, patient bool) error {
	unlock, ok := func() {}, false
	news := len(r.fresh) > 0 || len(r.asked) > 0
	if news || patient && !m.closed.Load() {
		if release, got := m.lockFile(patient); got {
			unlock, ok = release, true
		}
	}
	defer unlock()
	switch err := m.reread(name, r); {
	case err != nil:
		return err
	case !news:
		return nil
	case ok:
		return m.rewriteOwn(name, r)
	case m.closed.Load():
		return m.appendOwn(name, r)
	}
	return nil
}

// appendOwn appends this process's last charges to the file, which another process is
// writing. It begins a new line first, since the last one may be cut off.
func (m *memory) appendOwn(name string, r *remembered) error {
	file, err := os.OpenFile(m.ownFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	text, err := lines(thin(r.fresh, r.Held))
	if err == nil {
		_, err = file.Write(append([]byte("\n"), text...))
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		r.fresh = nil
	}
	return err
}

// rewriteOwn rewrites the file with this process's charges, and with which charges the
// store lacks. It sets a damaged file aside. m.mu is held, but not during the write.
func (m *memory) rewriteOwn(name string, r *remembered) error {
	own, data, why, err := m.loadOwn(name)
	if unread := r.unread; err != nil { // it stays, and the other file is written all the same
		if r.unread = true; !unread {
			m.warn(name, err)
		}
		return nil
	}
	r.unread = false
	if why != nil {
		m.damaged(name, "own", m.ownFile(name), data, why)
	}
	asked := r.asked
	r.writing, r.fresh, r.asked = r.fresh, nil, nil
	own = append(own, r.writing...)
	for i, one := range own {
		if lacked, known := asked[one.ID]; known {
			own[i].Lacked = lacked
		}
	}
	own = thin(own, r.Held)
	text, err := json.Marshal(ownHead{len(own)})
	var rest []byte
	if err == nil {
		rest, err = lines(own)
	}
	if err == nil && len(own) > 0 {
		err = m.write(m.ownFile(name), slices.Concat(text, []byte("\n"), rest))
	}
	if err != nil { // they are written the next time
		if _, gone := os.Lstat(m.ownFile(name)); why != nil && errors.Is(gone, fs.ErrNotExist) {
			r.writing = own // what was read too, since the file was set aside
		}
		r.fresh, r.dirty = slices.Concat(r.writing, r.fresh), true
		if r.asked == nil {
			r.asked = asked
		}
	}
	r.writing = nil
	return err
}

// lines encodes stretches for the file.
func lines(list []stretch) ([]byte, error) {
	var text bytes.Buffer
	for encoder := json.NewEncoder(&text); len(list) > 0; list = list[1:] {
		if err := encoder.Encode(list[0]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// ownPatience is how long a patient lockFile waits for another process's write.
const ownPatience = 100 * time.Millisecond

// lockFile keeps the host's other writers from ownFile until unlock, so that a rewrite loses
// none of their charges. It waits for this process's if it is patient, but not for long for
// other processes: the one that holds the lock may be stopped. m.mu is held, and released
// meanwhile.
func (m *memory) lockFile(patient bool) (unlock func(), ok bool) {
	m.mu.Unlock()
	defer m.mu.Lock()
	if patient {
		m.writer.Lock()
	} else if !m.writer.TryLock() {
		return nil, false
	}
	defer func() {
		if !ok {
			m.writer.Unlock()
		}
	}()
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
			return func() { _ = file.Close(); m.writer.Unlock() }, true
		}
		if !patient || !time.Now().Before(end) {
			_ = file.Close()
			return nil, false
		}
		<-time.After(time.Millisecond)
	}
}
