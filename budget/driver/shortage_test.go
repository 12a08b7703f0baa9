package driver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
)

func TestShortage(t *testing.T) {
	for errno, says := range map[syscall.Errno]string{
		syscall.ENOSPC: "disk is full", syscall.EDQUOT: "disk quota", syscall.EFBIG: "ulimit -f", syscall.EMFILE: "ulimit -n",
		syscall.ENFILE: "descriptors", syscall.ENOMEM: "memory", syscall.ENOBUFS: "memory", syscall.EADDRNOTAVAIL: "port",
		syscall.ENOLCK: "locks", syscall.EIO: "check it",
		syscall.EACCES: "", syscall.EPERM: "", syscall.EROFS: "", syscall.ENOENT: "", syscall.ENOTDIR: "", syscall.EISDIR: "", syscall.ELOOP: "",
	} {
		for _, err := range []error{errno, &fs.PathError{Op: "open", Path: "f", Err: errno}, fmt.Errorf("doing: %w", errors.Join(errors.New("x"), errno))} {
			for _, dir := range []string{"", t.TempDir(), filepath.Join(t.TempDir(), "to", "be", "made")} {
				got := driver.Shortage(dir, err)
				if (got == "") != (says == "") || !strings.Contains(got, says) {
					t.Errorf("%v in %q: %q, want %q", err, dir, got, says)
				}
			}
		}
	}
	check.Equal(t, driver.Shortage("", nil), "", "of no error")
	check.Equal(t, driver.Shortage("", os.ErrDeadlineExceeded), "", "of the end of the time")
}

func TestShortageOfInodes(t *testing.T) {
	for _, c := range []struct {
		blocks, inodes, all uint64
		says                string
	}{
		{1, 0, 100, "inodes"},
		{0, 0, 100, "disk is full"},
		{0, 5, 100, "disk is full"},
		{1, 5, 100, "disk is full"}, // a block was returned meanwhile
		{1, 0, 0, "disk is full"},   // btrfs
	} {
		if got := driver.SpaceAdvice(c.blocks, c.inodes, c.all); !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
