package outage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// fileName turns a budget's name into a file's. No budget name contains a plus.
func fileName(budget string) string { return strings.ReplaceAll(budget, "/", "+") }

// budgetName undoes fileName.
func budgetName(file string) string { return strings.ReplaceAll(file, "+", "/") }

// writeFile writes a file as a whole or not at all, readable by this user alone. A
// durable file survives a power failure once writeFile has returned.
func writeFile(path string, data []byte, durable bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	if !durable {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
