package sqlitestore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// nobody is the user that a process started by root becomes: root may do all.
const nobody = 65534

// userOrders are for a process that opens a file without root's rights.
type userOrders struct {
	Path string
	// Used is what the ledger holds; below 0: it must not open, and say Says.
	Used int64
	Says string
}

// openAsAnotherUser is the life of that process.
func openAsAnotherUser(orders string) error {
	var o userOrders
	if err := json.Unmarshal([]byte(orders), &o); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := errors.Join(unix.Setgroups(nil), unix.Setgid(nobody), unix.Setuid(nobody)); err != nil {
			return fmt.Errorf("give up root: %w", err)
		}
	}
	store, err := standing(o.Path)
	if o.Used >= 0 {
		if err != nil {
			return err
		}
		used, err := usedOf(store)
		if err == nil && used != o.Used {
			err = fmt.Errorf("used %d, want %d", used, o.Used)
		}
		if err == nil {
			_, err = fillUntil(store, fmt.Sprint("after-", used, "-"), 1)
		}
		return errors.Join(err, store.Close())
	}
	if err == nil {
		return errors.Join(errors.New("it was opened"), store.Close())
	}
	if !errors.Is(err, driver.ErrStoreConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), o.Says) || !strings.Contains(err.Error(), o.Path) {
		return fmt.Errorf("error %w, want ErrStoreConfig that says %q and names the file", err, o.Says)
	}
	return nil
}

// asUser runs a process that opens the file.
func asUser(t *testing.T, what string, o userOrders) {
	t.Helper()
	if out, err := helper(t, "user", o).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", what, err, out)
	}
}

// placeFor is a folder of the user that the processes become, with a store that
// holds two charges.
func placeFor(t *testing.T) (dir, path string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	path = filepath.Join(dir, "q.db")
	must.Do(t, os.Mkdir(dir, 0o755))
	for above := filepath.Dir(dir); above != filepath.Dir(os.TempDir()) && above != "/" && above != filepath.Clean(os.TempDir()); above = filepath.Dir(above) {
		must.Do(t, os.Chmod(above, 0o755))
	}
	store, err := standing(path)
	if err == nil {
		_, err = fillUntil(store, "first-", 2)
		err = errors.Join(err, store.Close())
	}
	must.Do(t, err)
	give(t, nobody, dir, path, path+".lock", path+".next")
	return dir, path
}

// give makes files a user's, where that may be done.
func give(t *testing.T, uid int, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if os.Getuid() == 0 {
			must.Do(t, os.Chown(path, uid, uid))
		}
	}
}

func chmod(t *testing.T, mode os.FileMode, paths ...string) {
	t.Helper()
	for _, path := range paths {
		must.Do(t, os.Chmod(path, mode))
	}
}

// A file that the user may not write to is refused with what to do, and serves as it was once
// the user may.
func TestPermissions(t *testing.T) {
	const writable = "must be writable for this user; run all processes as one user"
	for what, fault := range map[string]struct {
		spoil, mend func(t *testing.T, dir, path string)
	}{
		"read-only file": {
			func(t *testing.T, _, path string) { chmod(t, 0o444, path) },
			func(t *testing.T, _, path string) { chmod(t, 0o644, path) },
		},
		"read-only folder": {
			func(t *testing.T, dir, _ string) { chmod(t, 0o555, dir) },
			func(t *testing.T, dir, _ string) { chmod(t, 0o755, dir) },
		},
		"read-only folder and file": {
			func(t *testing.T, dir, path string) { chmod(t, 0o444, path); chmod(t, 0o555, dir) },
			func(t *testing.T, dir, path string) { chmod(t, 0o755, dir); chmod(t, 0o644, path) },
		},
		"another user's file": { // without root one that its own user may not open, with the same error
			func(t *testing.T, _, path string) {
				give(t, 1, path)
				chmod(t, map[bool]os.FileMode{true: 0o600, false: 0}[os.Getuid() == 0], path)
			},
			func(t *testing.T, _, path string) { give(t, nobody, path); chmod(t, 0o600, path) },
		},
		"another user's lock": {
			func(t *testing.T, _, path string) {
				give(t, 1, path+".lock")
				chmod(t, map[bool]os.FileMode{true: 0o600, false: 0}[os.Getuid() == 0], path+".lock")
			},
			func(t *testing.T, _, path string) { give(t, nobody, path+".lock"); chmod(t, 0o600, path+".lock") },
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, path := placeFor(t)
			asUser(t, "before", userOrders{path, 2, ""})
			fault.spoil(t, dir, path)
			asUser(t, what, userOrders{path, -1, writable})
			fault.mend(t, dir, path)
			asUser(t, "after", userOrders{path, 3, ""})
			asUser(t, "at last", userOrders{path, 4, ""})
		})
	}
}

// A file that is to be made where that is not allowed: refused, nothing left
// behind, and made once it may be.
func TestNewFileInReadOnlyFolder(t *testing.T) {
	dir, _ := placeFor(t)
	path := filepath.Join(dir, "new.db")
	chmod(t, 0o555, dir)
	asUser(t, "read-only folder", userOrders{path, -1, "must be writable"})
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	chmod(t, 0o755, dir)
	asUser(t, "once it may be made", userOrders{path, 0, ""})
}
