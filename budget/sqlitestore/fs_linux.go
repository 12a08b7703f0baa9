package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkKinds are the file systems known to be shared between machines, by statfs's magic
// number. SQLite's log cannot work there: it needs memory shared by the processes of one
// machine. FUSE is not among them: it also serves local disks.
var networkKinds = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
}

// networkKind names the network file system that a directory is on; empty for a local one.
func networkKind(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "look at directory", Path: dir, Err: err}
	}
	return networkKinds[uint32(fs.Type)], nil //nolint:gosec // magic numbers have 32 bits
}
