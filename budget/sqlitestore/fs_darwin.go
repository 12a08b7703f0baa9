package sqlitestore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget"
)

// networkKinds are the file systems known to be shared between machines, by
// statfs's name. SQLite's log lives in memory shared by the processes of one
// machine, and cannot work there.
var networkKinds = map[string]string{
	"nfs":    "NFS",
	"smbfs":  "SMB",
	"afpfs":  "AFP",
	"webdav": "WebDAV",
}

// checkFileSystem refuses directories that are not there or not of this machine.
func checkFileSystem(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "look at directory", Path: dir, Err: err}
	}
	return refuseNetwork(dir, networkKinds[unix.ByteSliceToString(fs.Fstypename[:])])
}

// refuseNetwork refuses a directory of a network file system of this name.
func refuseNetwork(dir, kind string) error {
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%w: directory %s lies on a network file system (%s), where processes cannot share a SQLite file: use a local disk, or a Redis store for several machines",
		budget.ErrStoreConfig, dir, kind)
}
