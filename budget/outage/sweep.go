package outage

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// sweepEvery is the least time between two sweeps, across the host's processes.
const sweepEvery = time.Hour

// forgottenAfter is how long after nothing of a budget counts any more its files are kept: a
// week, and a day for the longest lease.
const forgottenAfter = 8 * 24 * time.Hour

// sweep removes the files of budgets for which nothing counts any more: a credential "*" has any
// number of them. It removes what writes left that were cut off, too.
func (m *memory) sweep() {
	mark := filepath.Join(m.dir, "swept")
	if info, err := os.Stat(mark); err == nil && time.Since(info.ModTime()) < sweepEvery {
		return
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil { // else each process would sweep
		return
	}
	_ = os.Chtimes(mark, time.Now(), time.Now()) // writing nothing into an empty file does not
	for _, folder := range []string{"memory", "own", "."} {
		files, _ := os.ReadDir(filepath.Join(m.dir, folder)) // there may be none
		for _, file := range files {
			info, err := file.Info()
			if err != nil {
				continue // another process has removed it
			}
			age, name := time.Since(info.ModTime()), budgetName(file.Name())
			if strings.HasPrefix(name, ".tmp-") && age > abandoned {
				_ = os.Remove(filepath.Join(m.dir, folder, name))
			}
			if driver.ValidBudget(name) && age > forgottenAfter && m.forgotten(name) {
				_ = os.Remove(m.file(name)) // the next sweep tries again
				_ = os.Remove(m.ownFile(name))
			}
		}
	}
}

// forgotten reports whether nothing that the directory has of a budget counts any more, and has
// not for long. A file that does not say until when it counts may be of a window of a year.
func (m *memory) forgotten(name string) bool {
	r, err := m.load(name)
	at, held := r.Mark.Seen, r.Held
	if held == 0 {
		held = (366 * 24 * time.Hour).Microseconds()
	}
	if info, err := os.Stat(m.ownFile(name)); err == nil {
		at = max(at, info.ModTime().UnixMicro())
	}
	for _, t := range r.Facts {
		at = max(at, t.End-held)
	}
	return err == nil && m.wall()-at > held+forgottenAfter.Microseconds()
}
