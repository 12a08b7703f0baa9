package outage

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// sweepEvery is the least time between two sweeps, across the host's processes.
const sweepEvery = time.Hour

// forgottenAfter is how long after nothing of a budget counts any more its files are kept: a
// week, and a day for the longest lease.
const forgottenAfter = 8 * 24 * time.Hour

// enough is how many budgets a process that ends still forgets before it leaves the others to the
// next one: nobody waits for seconds for a command to end.
const enough = 300

// longestWindow is that of a year, in µs.
const longestWindow = 366 * 24 * int64(time.Hour/time.Microsecond)

// waitingFolder has a file for each call that waits, locked by its process; see budget.Spec.WaitDir.
const waitingFolder = "waiting"

// sweep removes the files of budgets for which nothing counts any more: a credential "*" has any
// number of them. It removes what writes left that were cut off, too, and the files in waiting/
// of calls whose processes were killed.
func (m *memory) sweep() {
	mark := filepath.Join(m.dir, "swept")
	if info, err := os.Stat(mark); err == nil && time.Since(info.ModTime()) < sweepEvery {
		return
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil { // else each process would sweep
		return
	}
	_ = os.Chtimes(mark, time.Now(), time.Now()) // writing nothing into an empty file does not
	gone := 0
	for _, folder := range []string{waitingFolder, "memory", "own", "journal", "."} {
		files, _ := os.ReadDir(filepath.Join(m.dir, folder)) // there may be none
		for _, file := range files {
			info, err := file.Info()
			if err != nil {
				continue // another process has removed it
			}
			age, name := time.Since(info.ModTime()), budgetName(file.Name())
			path := filepath.Join(m.dir, folder, file.Name())
			switch {
			case age > abandoned && (strings.HasPrefix(name, ".tmp-") || folder == waitingFolder && !isLocked(path)):
				_ = os.Remove(path)
			case folder == waitingFolder || !driver.ValidBudget(name) || age <= forgottenAfter:
			default:
				removed, ok := m.removeForgotten(name)
				if !ok {
					return // the next sweep tries again
				}
				if removed {
					gone++
				}
				if gone >= enough && m.closed.Load() {
					_ = os.Remove(mark)
					return
				}
			}
		}
	}
}

// isLocked reports whether a process has a file locked, or whether that is unknown.
func isLocked(path string) bool {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer file.Close() //nolint:errcheck // it was only read
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// removeForgotten removes a budget's files if it is forgotten. It is false if another process does
// not stop writing to own/: then it removes nothing.
func (m *memory) removeForgotten(name string) (removed, ok bool) {
	m.mu.Lock()
	unlock, ok := m.lockFile(true)
	m.mu.Unlock()
	if !ok {
		return false, false
	}
	defer unlock()
	if removed = m.forgotten(name); removed {
		_ = os.Remove(m.file(name)) // the next sweep tries again
		_ = os.Remove(m.ownFile(name))
		_ = os.RemoveAll((&journal{dir: m.dir}).folder(name)) // what nobody recorded, since nobody returned
	}
	return removed, true
}

// forgotten reports whether nothing that the directory has of a budget counts any more, and has
// not for long. A file that does not say until when it counts may be of a window of a year.
func (m *memory) forgotten(name string) bool {
	r, err := m.load(name)
	at, held := r.Mark.Seen, r.Held
	if held == 0 {
		held = longestWindow
	}
	if info, err := os.Stat(m.ownFile(name)); err == nil {
		at = max(at, info.ModTime().UnixMicro())
	}
	if info, err := os.Stat((&journal{dir: m.dir}).folder(name)); err == nil {
		at = max(at, info.ModTime().UnixMicro()+longestWindow-held) // the store may count its charges for longer
	}
	for _, t := range r.Facts {
		at = max(at, t.End-held)
	}
	return err == nil && m.wall()-at > held+forgottenAfter.Microseconds()
}
