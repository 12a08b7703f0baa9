package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// partialSuffix marks a file that is not, or not yet, complete.
const partialSuffix = ".partial"

// output is a file that appears under its final name only when it is complete.
// Its partial file stands beside it.
type output struct {
	final string
	file  *os.File
	size  int64 // whole pages
	named bool  // the final name is the file's
	sync  func(folder string) error
}

// outputPath is where a run's file goes.
func (j *Job) outputPath(tick time.Time, region string) string {
	return filepath.Clean(j.expand(j.Fetch.Output, tick, region))
}

// createOutput opens the partial file; neither it nor the final one may exist.
func createOutput(final string) (*output, error) {
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", final, err)
	}
	if _, err := os.Lstat(final); err == nil {
		return nil, fmt.Errorf("%s exists; it is not overwritten: move it away", final)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for %s: %w", final, err)
	}
	file, err := os.OpenFile(final+partialSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create the partial file: %w", err)
	}
	return &output{final: final, file: file, sync: syncFolder}, nil
}

// write adds one page's lines, all or none of them.
func (o *output) write(lines []byte) error {
	if _, err := o.file.Write(lines); err != nil {
		return errors.Join(fmt.Errorf("write a page: %w", err), o.file.Truncate(o.size))
	}
	o.size += int64(len(lines))
	return nil
}

// finish makes the file safe on disk and gives it its final name, unless a
// file has that name by now.
func (o *output) finish() error {
	if err := o.close(); err != nil {
		return err
	}
	partial := o.final + partialSuffix
	err := os.Link(partial, o.final) // unlike a rename it never overwrites
	switch {
	case err == nil:
		o.named = true
		err = os.Remove(partial)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s has come into being meanwhile; it is not overwritten: see %s", o.final, partial)
	default: // a file system without links
		err = os.Rename(partial, o.final)
		o.named = err == nil
	}
	if err != nil {
		return fmt.Errorf("give %s its name: %w", o.final, err)
	}
	return o.sync(filepath.Dir(o.final))
}

// keep closes a file that was cut and returns the name it has, which is the
// partial one unless finish came to give it the final; a file without a page
// is removed.
func (o *output) keep() (string, error) {
	if o.named {
		return o.final, nil
	}
	partial := o.final + partialSuffix
	err := o.close()
	if o.size > 0 {
		return partial, err
	}
	if removed := os.Remove(partial); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove an empty file: %w", removed))
	}
	return "", err
}

// close is done once.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	file := o.file
	o.file = nil
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write %s to disk: %w", file.Name(), err)
	}
	return nil
}

// syncFolder makes a new name in a folder safe on disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write %s to disk: %w", path, err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("write %s to disk: %w", path, err)
	}
	return nil
}
