package sqlitestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A disk that is full, and one that comes to be read-only, where this user may
// mount one; the tests above show the same of the store without that right.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Logf("no file system may be mounted here: %v", err)
		return
	}
	defer func() { check.NoError(t, unix.Unmount(dir, 0)) }()
	path, filler := filepath.Join(dir, "q.db"), filepath.Join(dir, "filler")
	fill := func() error {
		err := os.WriteFile(filler, make([]byte, 17<<20), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("fill the disk: %v, want ENOSPC", err) //nolint:errorlint // it may be nil
		}
		return nil
	}
	if err := throughFullDisk(path, fill, func() error { return os.Remove(filler) }, "make room"); err != nil {
		t.Error(err)
	}
	isWhole(t, path)

	// Where there is no room from the beginning nothing can be opened, until there is.
	must.Do(t, fill())
	openFails(t, filepath.Join(dir, "new.db"), driver.ErrUnavailable, "make room")
	must.Do(t, os.Remove(filler))
	store, err := standing(filepath.Join(dir, "new.db"))
	if err == nil {
		_, err = fillUntil(store, "a", 1)
		err = errors.Join(err, store.Close())
	}
	check.NoError(t, err, "once there is room")

	// Without a free inode there is room, and nothing can be opened either.
	must.Do(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m,nr_inodes="+inodes(t, dir)))
	openFails(t, filepath.Join(dir, "new.db"), driver.ErrUnavailable, "no free inodes")
	openFails(t, filepath.Join(dir, "third.db"), driver.ErrUnavailable, "no free inodes")
	must.Do(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m,nr_inodes=1k"))

	// Remounted read-only the file is refused, and serves again when that is over.
	before := query[int](t, path, "SELECT count(*) FROM entry")
	must.Do(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=16m"))
	openFails(t, path, driver.ErrStoreConfig, "writable")
	must.Do(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"))
	if store, err = standing(path); err != nil {
		t.Fatal(err)
	}
	used, err := usedOf(store)
	if err := errors.Join(err, store.Close()); err != nil || used != int64(before) {
		t.Errorf("used %d (%v), want the %d of before", used, err, before)
	}
}

// inodes is how many inodes the file system of a directory uses.
func inodes(t *testing.T, dir string) string {
	t.Helper()
	var fs unix.Statfs_t
	must.Do(t, unix.Statfs(dir, &fs))
	return strconv.FormatUint(fs.Files-fs.Ffree, 10)
}
