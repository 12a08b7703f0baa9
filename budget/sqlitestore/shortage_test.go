package sqlitestore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// What may pass by itself is a store out of reach; what stays is a fault of the configuration.
func TestWhatPasses(t *testing.T) {
	dir := t.TempDir()
	for link, to := range map[string]string{"link.db": "none/q.db", "links.db": filepath.Join(dir, "link.db"), "new.db": "other.db"} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	_, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "links.db"), sqlitestore.Options{Timeout: 5 * time.Minute})
	must.Is(t, err, driver.ErrStoreConfig, "a store behind links that lead nowhere")
	const ioErr, full, cantOpen, noMem, readOnly, notADB = 10, 13, 14, 7, 8, 26
	for _, c := range []struct {
		what string
		path string
		err  error
		kind error
		says string
	}{
		{"a full disk", "q.db", sqlitestore.Fault(full, 0), driver.ErrUnavailable, "disk is full: make room"},
		{"a used up quota", "q.db", sqlitestore.Fault(ioErr|3<<8, unix.EDQUOT), driver.ErrUnavailable, "disk quota"},
		{"a file that is too large", "q.db", sqlitestore.Fault(ioErr|3<<8, unix.EFBIG), driver.ErrUnavailable, "ulimit -f"},
		{"a broken disk", "q.db", sqlitestore.Fault(ioErr|1<<8, unix.EIO), driver.ErrUnavailable, "check it"},
		{"an error of nothing known", "q.db", sqlitestore.Fault(ioErr|1<<8, 0), driver.ErrUnavailable, "check its disk"},
		{"no memory", "q.db", sqlitestore.Fault(noMem, 0), driver.ErrUnavailable, "memory"},
		{"no descriptors", "q.db", sqlitestore.Fault(cantOpen, unix.EMFILE), driver.ErrUnavailable, "ulimit -n"},
		{"no descriptors of the machine", "q.db", sqlitestore.Fault(cantOpen, unix.ENFILE), driver.ErrUnavailable, "fs.file-max"},
		{"what was short no longer is", "q.db", sqlitestore.Fault(cantOpen, 0), driver.ErrUnavailable, "try again"},
		{"no directory", "none/q.db", sqlitestore.Fault(cantOpen, 0), driver.ErrStoreConfig, "make the directory"},
		{"a link to a file in no directory", "link.db", sqlitestore.Fault(cantOpen, 0), driver.ErrStoreConfig, "make the directory"},
		{"links to it", "links.db", sqlitestore.Fault(cantOpen, 0), driver.ErrStoreConfig, "make the directory"},
		{"a link to what can be made", "new.db", sqlitestore.Fault(cantOpen, 0), driver.ErrUnavailable, "try again"},
		{"a directory in its place", "q.db", sqlitestore.Fault(cantOpen, unix.EISDIR), driver.ErrStoreConfig, "another path"},
		{"no permission", "q.db", sqlitestore.Fault(cantOpen, unix.EACCES), driver.ErrStoreConfig, "writable"},
		{"read only", "q.db", sqlitestore.Fault(readOnly, 0), driver.ErrStoreConfig, "writable"},
		{"another kind of file", "q.db", sqlitestore.Fault(notADB, 0), driver.ErrStoreConfig, "not a SQLite file"},
		{"no locks", "q.db", &os.PathError{Op: "lock", Path: "q.db.lock", Err: unix.ENOLCK}, driver.ErrUnavailable, "file locks"},
		{"no locking", "q.db", &os.PathError{Op: "lock", Path: "q.db.lock", Err: unix.ENOSYS}, driver.ErrStoreConfig, "local disk"},
		{"a loop of links", "q.db", &os.PathError{Op: "open", Path: "q.db.lock", Err: unix.ELOOP}, driver.ErrStoreConfig, "another path"},
		{"a name that is too long", "q.db", &os.PathError{Op: "open", Path: "q.db.lock", Err: unix.ENAMETOOLONG}, driver.ErrStoreConfig, "another path"},
	} {
		err := sqlitestore.Explain(filepath.Join(dir, c.path), c.err)
		if !errors.Is(err, c.kind) || errors.Is(err, driver.ErrUnavailable) == errors.Is(err, driver.ErrStoreConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", c.what, err, c.kind, c.says)
		}
	}
}

// A process with too few file descriptors learns that, wherever the opening stops.
func TestNoDescriptors(t *testing.T) {
	if out, err := helper(t, "descriptors", filepath.Join(t.TempDir(), "q.db")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// openWithFewDescriptors is the life of that process.
func openWithFewDescriptors(orders string) error {
	var path string
	if err := json.Unmarshal([]byte(orders), &path); err != nil {
		return err
	}
	store, err := standing(path)
	if err == nil {
		_, err = fillUntil(store, "first-", 1)
		err = errors.Join(err, store.Close())
	}
	var usual unix.Rlimit
	if err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual)); err != nil {
		return err
	}
	opened, refused := false, 0
	for most := uint64(1); most < 60; most++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: usual.Max}); err != nil {
			return err
		}
		store, err := standing(path)
		if opened = err == nil; opened {
			if err := store.Close(); err != nil {
				return err
			}
			continue
		}
		refused++
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrStoreConfig) || !strings.Contains(err.Error(), "ulimit -n") {
			return fmt.Errorf("with %d descriptors: %w", most, err)
		}
	}
	if !opened || refused < 4 {
		return fmt.Errorf("opened at last %v, refused %d times", opened, refused)
	}
	return nil
}
