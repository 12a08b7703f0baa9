package ledgerfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Open opens a file for Check and Import, which each read it from its start. A file that
// cannot be read twice, such as a pipe, is first copied to a temporary file, which the system
// removes when it is closed.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err == nil {
		return f, nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	spool, err := os.CreateTemp("", "quotactl-import-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(spool.Name())
	if err == nil {
		_, err = io.Copy(spool, f)
	}
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", path, errors.Join(err, spool.Close()))
	}
	return spool, nil
}
