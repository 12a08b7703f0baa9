package sqlitestore

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkKinds are the file systems known to be shared between machines, by statfs's name.
// SQLite's log cannot work there: it needs memory shared by the processes of one machine.
var networkKinds = map[string]string{
	"nfs":    "NFS",
	"smbfs":  "SMB",
	"afpfs":  "AFP",
	"webdav": "WebDAV",
}

// networkKind names the network file system that a directory is on; empty for a local one.
func networkKind(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "look at directory", Path: dir, Err: err}
	}
	return networkKinds[unix.ByteSliceToString(fs.Fstypename[:])], nil
}
