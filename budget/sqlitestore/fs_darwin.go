package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
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

// networkKind is the name of the network file system that a directory lies on;
// empty for one of this machine.
func networkKind(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "look at directory", Path: dir, Err: err}
	}
	return networkKinds[unix.ByteSliceToString(fs.Fstypename[:])], nil
}
