package sqlitestore

import (
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
)

// kindOf is [networkKind]; tests replace it.
var kindOf = networkKind

// checkFileSystem refuses directories that do not exist or are on a network file system.
func checkFileSystem(dir string) error {
	kind, err := kindOf(dir)
	if err != nil || kind == "" {
		return err
	}
	return fmt.Errorf("%w: directory %s is on a network file system (%s), where processes cannot share a SQLite file: use a local disk, or a Redis store for several machines",
		driver.ErrStoreConfig, dir, kind)
}
