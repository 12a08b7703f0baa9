package driver

import (
	"errors"
	"path/filepath"
	"syscall"
)

// shortages are the errors of the operating system that may pass by themselves: something that
// others use too is used up, and they may give it back. What else the system refuses (no permission,
// no such directory, a read-only file system) stays until a person changes it.
var shortages = []struct {
	errno  syscall.Errno
	advice string
}{
	{syscall.ENOSPC, diskFull},
	{syscall.EDQUOT, "this user's disk quota is used up: remove files of this user, or raise the quota"},
	{syscall.EFBIG, "this process may not write larger files: raise its limit (ulimit -f)"},
	{syscall.EMFILE, "this process has all the file descriptors that it may have: raise its limit (ulimit -n, LimitNOFILE)"},
	{syscall.ENFILE, "the machine has no free file descriptors: end programs, or raise fs.file-max"},
	{syscall.ENOMEM, "the machine is out of memory: end programs, or give it more"},
	{syscall.ENOBUFS, "the machine is out of memory for network connections: end programs, or give it more"},
	{syscall.EADDRNOTAVAIL, "the machine has no free port for a connection, or not that address: end connections, or correct the address"},
	{syscall.ENOLCK, "the machine has no free file locks: end programs"},
	{syscall.EIO, "the disk failed to read or write: check it"},
}

const (
	diskFull = "the disk is full: make room"
	noInodes = "the file system has no free inodes: remove files that are not needed"
)

// Shortage says what the machine is short of, and what to do, if err reports a shortage that may
// pass by itself; else it is empty. dir is where a file or folder was to be made, to tell whether
// blocks or inodes are short there; empty if that is not known.
func Shortage(dir string, err error) (advice string) {
	for _, s := range shortages {
		if !errors.Is(err, s.errno) {
			continue
		}
		var fs syscall.Statfs_t
		for at := dir; s.errno == syscall.ENOSPC && at != ""; at = filepath.Dir(at) {
			err := syscall.Statfs(at, &fs)
			if err == nil {
				return spaceAdvice(fs.Bavail, fs.Ffree, fs.Files)
			}
			if !errors.Is(err, syscall.ENOENT) || at == filepath.Dir(at) {
				break
			}
		}
		return s.advice
	}
	return ""
}

// spaceAdvice says what a file system without room is short of. One without a table of inodes, as
// btrfs is, reports that it has none in all.
func spaceAdvice(blocks, inodes, inodesInAll uint64) string {
	if blocks > 0 && inodes == 0 && inodesInAll > 0 {
		return noInodes
	}
	return diskFull
}
