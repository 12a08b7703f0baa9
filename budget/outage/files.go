package outage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// fileName is a budget's name as a file's: no name holds a plus.
func fileName(budget string) string { return strings.ReplaceAll(budget, "/", "+") }

// budgetName undoes fileName.
func budgetName(file string) string { return strings.ReplaceAll(file, "+", "/") }

// writeFile writes a file whole or not at all, for this user alone. A durable one
// survives a loss of power once it is written.
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

// syncDir makes what was named in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
