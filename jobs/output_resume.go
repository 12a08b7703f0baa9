package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// isThere reports whether a file of this final name is in the outputs' folder.
func (o *output) isThere(name string) bool {
	_, err := o.folder.Lstat(name)
	return err == nil
}

// takeOver begins the file, which is empty, with the first bytes of another partial
// one of the folder, of which the final name is told. It is copied and stays: whoever
// had it open, and is not as dead as was taken, writes into his own. False, where
// there is none that has so many, or an error says why.
func (o *output) takeOver(name string, size int64) (took bool, err error) {
	if size <= 0 {
		return size == 0, nil
	}
	partial := name + partialSuffix
	info, err := o.folder.Lstat(partial)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for %s: %w", partial, err)
	case !info.Mode().IsRegular() || info.Size() < size:
		return false, fmt.Errorf("%s is not what was kept: it has %d bytes, of which %d were whole pages", partial, info.Size(), size)
	}
	from, err := o.folder.Open(partial)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", partial, err)
	}
	defer func() { _ = from.Close() }() // it was only read
	if _, err := io.CopyN(o.file, from, size); err != nil {
		return false, errors.Join(fmt.Errorf("take %s over: %w", partial, err), o.restart())
	}
	o.size = size
	return true, nil
}

// restart empties the file.
func (o *output) restart() error {
	o.size = 0
	_, err := o.file.Seek(0, io.SeekStart)
	if err = errors.Join(err, o.file.Truncate(0)); err != nil {
		return fmt.Errorf("empty the partial file of %s: %w", o.final, err)
	}
	return nil
}

// flush makes the pages that were written safe on disk.
func (o *output) flush() error {
	if err := o.flushFile(o.file); err != nil {
		return fmt.Errorf("write %s to disk: %w", o.final+partialSuffix, err)
	}
	if o.listed {
		return nil
	}
	if err := o.sync(o.folder, filepath.Dir(o.name)); err != nil {
		return cmp.Or(o.gone(), err)
	}
	o.listed = true
	return nil
}

// discard removes another partial file, of which the final name is told.
func (o *output) discard(name string) error {
	if err := o.folder.Remove(name + partialSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name+partialSuffix, err)
	}
	return nil
}
