package sqlitestore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// modes are those of the files in a folder.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	all := map[string]fs.FileMode{}
	for _, entry := range entries {
		info := must.Get(entry.Info())(t)
		all[entry.Name()] = info.Mode().Perm()
	}
	return all
}

// spend opens a store, charges a unit, and looks while it is open, so that all
// of its files are there when visit is called.
func spend(t *testing.T, path string, visit func()) {
	t.Helper()
	s := must.Get(sqlitestore.Open(context.Background(), path, sqlitestore.Options{Timeout: patience}))(t)
	limits := []limit.Limit{rolling(10, hour)}
	_, decided := s.Decide(context.Background(), driver.Batch{
		Budget: name, Now: time.Now().UnixMicro(), Limits: limits, Items: []driver.Item{item("one", 1)},
	})
	_, looked := s.Look(context.Background(), driver.Look{Budget: name, Now: time.Now().UnixMicro(), Limits: limits})
	visit()
	must.Do(t, errors.Join(decided, looked, s.Close()))
}

// Only their owner may read the files, whatever the umask.
func TestFilesAreTheOwners(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		dir := t.TempDir()
		before := syscall.Umask(umask)
		defer syscall.Umask(before)
		spend(t, filepath.Join(dir, "q.db"), func() {
			got := modes(t, dir)
			for _, name := range []string{"q.db", "q.db-wal", "q.db-shm", "q.db.lock", "q.db.next"} {
				mode, there := got[name]
				if !there || mode != 0o600 {
					t.Errorf("umask %03o: %s has mode %03o (there: %t), want 600", umask, name, mode, there)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("umask %03o: other files: %v", umask, got)
			}
		})
		syscall.Umask(before)
	}
}

// A person who shares a store with a group by the files' modes is not undone.
func TestSharedFilesStayShared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "q.db")
	spend(t, path, func() {})
	shared := []string{"q.db", "q.db.lock", "q.db.next"}
	for _, name := range shared {
		must.Do(t, os.Chmod(filepath.Join(dir, name), 0o660)) //nolint:gosec // shared on purpose
	}
	spend(t, path, func() {
		got := modes(t, dir)
		for _, name := range slices.Concat(shared, []string{"q.db-wal", "q.db-shm"}) {
			check.Equal(t, got[name], 0o660, name, "has mode")
		}
	})
}
