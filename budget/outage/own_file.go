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

// ownFile holds the host's own charges, a stretch of them in each line, as JSON. Processes
// append to it, and now and then write it anew with what thin leaves; under the lock alone,
// unlike what any process may write that looked.
func (m *memory) ownFile(budget string) string { return filepath.Join(m.dir, "own", fileName(budget)) }

// maxAppended is up to which size, in bytes, the file is appended to.
const maxAppended = 128 << 10

// loadOwn is what lies in the file; what cannot be read is left out, such as a line that a
// process died in.
func (m *memory) loadOwn(name string) (list []stretch) {
	data, _ := os.ReadFile(m.ownFile(name)) // which may not be there yet
	for line := range bytes.Lines(data) {
		var one stretch
		if json.Unmarshal(line, &one) == nil {
			list = append(list, one)
		}
	}
	return list
}

// saveOwn takes over what lies in the directory, and adds what this process charged
// unless another one is writing, which it waits for a little where it is patient: then
// it keeps that for the next time. Under the lock, so that who has recovered a loss
// finds here what those that did not know of it had charged.
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

// appendOwn adds what this process charged to the file, unless that is to be written anew:
// it is not there, is too large, cannot be appended to, or lines in it have changed. What
// is added begins a line of its own, since the last one may have been cut.
func (m *memory) appendOwn(name string, r *remembered) (added bool) {
	file, err := os.OpenFile(m.ownFile(name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // what was written can be read already
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

// rewriteOwn writes the file anew, with what this process charged and has found out.
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

// lines are stretches as the file holds them.
func lines(list []stretch) ([]byte, error) {
	var text bytes.Buffer
	for encoder := json.NewEncoder(&text); len(list) > 0; list = list[1:] {
		if err := encoder.Encode(list[0]); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
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
