package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// journal holds the records yet to be made in the store, one file each. A charge's
// file is durable before the charge is granted, and is removed once the store has it.
// Processes need no lock: a second recording of the same id changes nothing.
type journal struct{ dir string }

func (j *journal) folder(budget string) string {
	return filepath.Join(j.dir, "journal", fileName(budget))
}

// write adds a record. Writing it again replaces the same file.
func (j *journal) write(r *record) error {
	r.Version = recordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		folder, err := makeDir(j.folder(r.Budget))
		if err == nil {
			err = writeFile(filepath.Join(folder, r.name()), data)
		}
		if err == nil {
			err = syncDir(folder)
		}
		// Another process may have removed the folder as empty just now.
		if err == nil || try == 3 || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// find reads the record with the same name as r; nil if there is none.
func (j *journal) find(r *record) (*record, error) {
	data, err := readFile(filepath.Join(j.folder(r.Budget), r.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseRecord(data)
}

// pending reports whether the budget may have records: the folder exists while it has any.
func (j *journal) pending(budget string) bool {
	if j.dir == "" {
		return false
	}
	_, err := os.Lstat(j.folder(budget))
	return !errors.Is(err, fs.ErrNotExist)
}

// entry is a record with its file.
type entry struct {
	*record
	path string
}

// abandoned is the age from which a temporary file counts as left by a killed process.
const abandoned = time.Minute

// list reads the records of a budget, charges before finishes. The charge of a listed
// finish is listed too, or recorded already. list sets aside files that cannot be read or
// hold no record, and calls told for each; err lists those that it could not set aside.
func (j *journal) list(budget string, told func(path string, why error)) (list []entry, err error) {
	files, err := os.ReadDir(j.folder(budget))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the host's journal: %w; make it this user's", err)
	}
	// Extensions sort charges first. A finish is written after its charge, so a listing
	// with the finish has the charge.
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return strings.Compare(filepath.Ext(a.Name()), filepath.Ext(b.Name())) })
	var errs []error
	for _, file := range files {
		path := filepath.Join(j.folder(budget), file.Name())
		if strings.HasPrefix(file.Name(), ".") { // being written
			if info, err := file.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
				_ = os.Remove(path) // what it records was never granted
			}
			continue
		}
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // recorded by another process
		}
		var r *record
		if err == nil {
			r, err = parseRecord(data)
		}
		if err == nil && (r.Budget != budget || r.name() != file.Name()) {
			err = fmt.Errorf("it belongs to budget %s, id %q", r.Budget, r.ID)
		}
		if err != nil {
			told(path, err)
			errs = append(errs, j.setAside(budget, path, err))
			continue
		}
		list = append(list, entry{r, path})
	}
	return list, errors.Join(errs...)
}

// remove deletes a record that the store has.
func (j *journal) remove(e entry) error {
	if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a record from the host's journal: %w; make it writable for this user", err)
	}
	return nil
}

// tidy removes a budget's folder if it is empty.
func (j *journal) tidy(budget string) { _ = os.Remove(j.folder(budget)) }

// setAside moves a file that cannot be recorded to the aside folder.
func (j *journal) setAside(budget, path string, why error) error {
	err := setAside(path, filepath.Join(j.dir, asideFolder, fileName(budget), filepath.Base(path)), why)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has
	}
	return err
}
