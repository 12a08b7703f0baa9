package sqlitestore

import (
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"golang.org/x/sys/unix"
)

// The kernel's magic numbers of file systems that machines share are known by
// name, those of a machine's own are not.
func TestNetworkMagicNumbers(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB2",
		unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CEPH_SUPER_MAGIC: "Ceph", unix.CODA_SUPER_MAGIC: "Coda",
		0x0bd00bd0:            "Lustre", // of no kernel header
		unix.EXT4_SUPER_MAGIC: "", unix.XFS_SUPER_MAGIC: "", unix.BTRFS_SUPER_MAGIC: "", unix.TMPFS_MAGIC: "", unix.OVERLAYFS_SUPER_MAGIC: "",
		unix.F2FS_SUPER_MAGIC: "", unix.FUSE_SUPER_MAGIC: "",
	} {
		check.Equal(t, networkKinds[magic], want, magic)
	}
}
