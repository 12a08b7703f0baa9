package sqlitestore

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
)

// Doctor warns of a disk on which little is left, and fails where nothing is: then nothing is
// charged.
func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, inodes uint64
		want           driver.Severity
	}{
		"much":                 {1 << 30, 1 << 30, driver.OK},
		"few blocks":           {1, 1 << 30, driver.Warning},
		"no block":             {0, 1 << 30, driver.Fault},
		"few inodes":           {1 << 30, 1, driver.Warning},
		"no inode":             {1 << 30, 0, driver.Fault},
		"few blocks, no inode": {1, 0, driver.Fault},
	} {
		fs := unix.Statfs_t{Bsize: 4096, Bavail: c.blocks, Files: 1 << 40, Ffree: c.inodes}
		f := roomOf(driver.Finding{Level: driver.OK}, &fs)
		check.Equal(t, f.Level, c.want, name)
		check.Equal(t, f.Advice != "", c.want != driver.OK, name, "advice")
	}
}
