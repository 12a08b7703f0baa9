package sqlitestore

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
)

// scarce is the free space in bytes below which Diagnose warns.
const scarce = 100 << 20

// scarceInodes is likewise how many files can still be made.
const scarceInodes = 1000

// Diagnose reports what may keep the file, or its place, from holding the store's
// promises. Open has already refused what cannot work at all.
func (s *Store) Diagnose(ctx context.Context) []driver.Finding {
	list := []driver.Finding{{Check: "file", Level: driver.OK, Says: s.path + " is on a file system of this machine, and is synced at each charge: what was acknowledged survives a loss of power"}}
	began := time.Now()
	bounded, cancel := s.bound(ctx)
	defer cancel()
	err := s.write(bounded, func(*conn) error { return nil })
	took := time.Since(began)
	if err == nil {
		var says string
		err = s.readAlone(ctx, func(c *conn) error {
			err := c.within(ctx, func() error { return errOf(c.first("PRAGMA quick_check(1)", nil, &says)) })
			if err == nil && says != "ok" {
				err = fmt.Errorf("%w: %s; %s", driver.ErrDamaged, says, adviceDamaged)
			}
			if err == nil {
				err = countEntries(ctx, c)
			}
			if err == nil {
				err = checkSums(ctx, c)
			}
			return err
		})
	}
	if err != nil {
		return append(list, driver.Finding{Check: "integrity", Level: driver.Fault, Says: s.explain(ctx, "check", err).Error()})
	}
	return append(list,
		driver.Finding{Check: "integrity", Level: driver.OK, Says: "the file is whole, and holds every entry that was recorded"},
		driver.Finding{Check: "latency", Level: driver.OK, Says: fmt.Sprintf("an empty transaction took %s, of a timeout of %s", took.Round(10*time.Microsecond), s.timeout)},
		s.room())
}

// room reports the disk's free space.
func (s *Store) room() driver.Finding {
	f := driver.Finding{Check: "disk", Level: driver.OK}
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(s.path), &fs); err != nil {
		f.Level, f.Says = driver.Warning, fmt.Sprintf("the free space cannot be read: %v", err)
		return f
	}
	return roomOf(f, &fs)
}

// roomOf judges what a file system has left.
func roomOf(f driver.Finding, fs *unix.Statfs_t) driver.Finding {
	level := driver.Warning
	if fs.Bavail == 0 || fs.Files > 0 && fs.Ffree == 0 {
		level = driver.Fault
	}
	left := fs.Bavail * uint64(fs.Bsize) //nolint:gosec // a block has no negative size, and another type elsewhere
	f.Says = fmt.Sprintf("%d MB are left", left>>20)
	if left < scarce {
		f.Level, f.Advice = level, "make room: nothing is charged on a full disk"
	}
	if fs.Files > 0 && fs.Ffree < scarceInodes {
		f.Level, f.Advice = level, "remove files that are not needed: nothing is charged where no file can be made"
		f.Says += fmt.Sprintf(", and %d inodes", fs.Ffree)
	}
	return f
}
