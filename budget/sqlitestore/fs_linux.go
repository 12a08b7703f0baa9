package sqlitestore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget"
)

// networkKinds are the file systems known to be shared between machines, by
// statfs's magic number. SQLite's log lives in memory shared by the processes
// of one machine, and cannot work there. FUSE is not among them: it also serves
// local disks.
var networkKinds = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x5346414f: "AFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
}

// checkFileSystem refuses directories that are not there or not of this machine.
func checkFileSystem(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "look at directory", Path: dir, Err: err}
	}
	return refuseNetwork(dir, networkKinds[uint32(fs.Type)]) //nolint:gosec // magic numbers have 32 bits
}

// refuseNetwork refuses a directory of a network file system of this name.
func refuseNetwork(dir, kind string) error {
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%w: directory %s lies on a network file system (%s), where processes cannot share a SQLite file: use a local disk, or a Redis store for several machines",
		budget.ErrStoreConfig, dir, kind)
}
