package outage

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// ownFile is the file of the host's own charges: one stretch a line, as JSON. Processes
// append to it, and now and then rewrite it with what thin leaves. They write it only under
// the lock, unlike the file in memory/, which any process may write that looked.
func (m *memory) ownFile(budget string) string { return filepath.Join(m.dir, "own", fileName(budget)) }

// maxAppended is the size in bytes from which the file is rewritten instead of appended to.
const maxAppended = 128 << 10

// loadOwn reads the file. It skips lines that it cannot read, such as one that a process
// died while writing.
func (m *memory) loadOwn(name string) (list []stretch) {
	data, _ := os.ReadFile(m.ownFile(name)) // the file may not exist yet
	for line := range bytes.Lines(data) {
		var one stretch
		if json.Unmarshal(line, &one) == nil {
			list = append(list, one)
		}
	}
	return list
}

// saveOwn merges what the directory has, and adds this process's charges to the file. If
// another process is writing, it keeps them for the next time; a patient caller first
// waits for ownPatience. It merges under the lock, so that a process that has recovered a
// loss finds here what processes that did not know of the loss had charged.
func (m *memory) saveOwn(name string, r *remembered, patient bool) error {
	unlock, ok := func() {}, false
	news := len(r.fresh) > 0 || len(r.asked) > 0
	if patient && !m.closed || news {
		if release, got := m.lockFile(patient); got {
			unlock, ok = release, true
		}
	}
	defer unlock()
	m.reread(name, r)
	if !news || !ok && !m.closed {
		return nil
	}
	if _, err := makeDir(m.dir, "own"); err != nil {
		return err
	}
	if !m.appendOwn(name, r) {
		if err := m.rewriteOwn(name, r); err != nil {
			return err
		}
	}
	r.fresh, r.asked = nil, nil
	return nil
}

// appendOwn appends this process's charges to the file. It returns false if the file must
// be rewritten: it does not exist, is too large, cannot be appended to, or lines in it have
// changed. It begins a new line first, since the last one may be cut off.
func (m *memory) appendOwn(name string, r *remembered) (added bool) {
	file, err := os.OpenFile(m.ownFile(name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // other processes can read what was written
	info, err := file.Stat()
	if err != nil || info.Size() >= maxAppended || len(r.asked) > 0 {
		return false
	}
	text, err := lines(thin(r.fresh, r.Held))
	if err == nil {
		_, err = file.Write(append([]byte("\n"), text...))
	}
	if err != nil {
		_ = file.Truncate(info.Size()) // if it cannot, these charges count twice when the ledger has lost them
	}
	return err == nil
}

// rewriteOwn rewrites the file with this process's charges, and with which charges the
// store lacks.
func (m *memory) rewriteOwn(name string, r *remembered) error {
	own := slices.Concat(m.loadOwn(name), r.fresh)
	for i, one := range own {
		if lacked, known := r.asked[one.ID]; known {
			own[i].Lacked = lacked
		}
	}
	text, err := lines(thin(own, r.Held))
	if err != nil {
		return err
	}
	return writeFile(m.ownFile(name), text, false)
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

// lockFile keeps the host's other processes from writing ownFile until unlock, so that a
// rewrite loses none of their charges. It does not wait for long: the process that holds
// the lock may be stopped.
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
