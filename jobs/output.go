package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// partialSuffix marks a file that is not complete, or not yet.
const partialSuffix = ".partial"

// output is a file that has its final name only once it is complete. Until then it is a
// partial file in the same folder. No name and no link in that folder leads outside of
// it.
type output struct {
	folder *os.Root // the caller closes it
	name   string   // the final name, within the folder
	final  string   // the whole path of name
	stem   string   // the partial file's name without its suffix: name, or another for a later part of a pass
	file   *os.File
	size   int64 // of the whole pages, in bytes
	named  bool  // the file has its final name
	sync   func(folder *os.Root, path string) error
	// flushFile makes the file's content safe on disk; listed says that its name is, too.
	flushFile func(*os.File) error
	listed    bool
}

// outputPlace is the folder of a job's outputs (the part before the first placeholder)
// and the file of a run in it.
func (j *Job) outputPlace(tick time.Time, region string) (folder, name string) {
	fixed := j.Fetch.Output
	for _, stands := range []string{"{job}", "{region}", "{tick}"} {
		fixed, _, _ = strings.Cut(fixed, stands)
	}
	folder = fixed[:strings.LastIndex(fixed, "/")+1]
	name = j.expand(strings.TrimPrefix(j.Fetch.Output, folder), tick, region)
	return filepath.Clean(folder), filepath.Clean(strings.TrimLeft(name, "/")) // a job without regions has an empty region
}

// outputPath is the path of a run's file.
func (j *Job) outputPath(tick time.Time, region string) string {
	return filepath.Join(j.outputPlace(tick, region))
}

// The modes of outputs: other programs may read them, but only their owner may change
// them. The umask restricts both, as usual. Files that only quotactl reads are
// readable by their owner alone.
const (
	outputMode       = 0o644
	outputFolderMode = 0o755
)

// createOutput opens the partial file; neither it nor the final file may exist. A later
// part of a pass, 2 or more, has a partial file of its own beside those of earlier parts.
func createOutput(folder, name string, part int) (*output, error) {
	final := filepath.Join(folder, name)
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%s is not in %s: take out of output what leads out of the folder", final, folder)
	}
	if err := os.MkdirAll(folder, outputFolderMode); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", final, explainGone(folder, err))
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the folder of %s: %w", final, err)
	}
	o := &output{folder: root, name: name, final: final, stem: name, sync: syncFolder}
	if part > 1 {
		o.stem += "." + strconv.Itoa(part)
	}
	if err := o.create(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return o, nil
}

func (o *output) create() error {
	if err := o.folder.MkdirAll(filepath.Dir(o.name), outputFolderMode); err != nil {
		return fmt.Errorf("make the folder of %s: %w; no link may lead out of %s", o.final, err, o.folder.Name())
	}
	if _, err := o.folder.Lstat(o.name); err == nil {
		return fmt.Errorf("%s exists; it is not overwritten: move it away", o.final)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check for %s: %w; no link may lead out of %s", o.final, err, o.folder.Name())
	}
	var err error
	if o.file, err = o.folder.OpenFile(o.stem+partialSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, outputMode); err != nil {
		return fmt.Errorf("create the partial file of %s: %w", o.final, err)
	}
	return nil
}

// write adds one page's lines, all or none of them.
func (o *output) write(lines []byte) error {
	if _, err := o.file.Write(lines); err != nil {
		return errors.Join(fmt.Errorf("write a page: %w", err), o.file.Truncate(o.size))
	}
	o.size += int64(len(lines))
	return nil
}

// finish makes the file safe on disk and gives it its final name, unless another file has
// that name by now.
func (o *output) finish() error {
	if err := o.gone(); err != nil {
		return err
	}
	if err := o.close(); err != nil {
		return err
	}
	partial := o.stem + partialSuffix
	err := o.folder.Link(partial, o.name) // unlike a rename it never overwrites
	switch {
	case err == nil:
		o.named = true
		err = o.folder.Remove(partial)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s was created by something else meanwhile; it is not overwritten: see %s", o.final, o.partial())
	default: // a file system without links
		err = o.folder.Rename(partial, o.name)
		o.named = err == nil
	}
	if err != nil {
		return fmt.Errorf("give %s its name: %w", o.final, err)
	}
	return o.sync(o.folder, filepath.Dir(o.name))
}

// keep closes an incomplete file and returns its name: the partial one, or the final one
// if finish got that far. It removes a file without a page. A file that others have
// removed has no name.
func (o *output) keep() (string, error) {
	if o.named {
		return o.final, nil
	}
	gone := o.gone()
	err := o.close()
	switch {
	case o.size > 0 && gone != nil:
		return "", errors.Join(err, gone)
	case o.size > 0:
		return o.partial(), err
	}
	if removed := o.folder.Remove(o.stem + partialSuffix); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove an empty file: %w", removed))
	}
	return "", err
}

// close closes the file once.
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
func syncFolder(in *os.Root, path string) error {
	folder, err := in.Open(path)
	if err != nil {
		return fmt.Errorf("write %s to disk: %w", path, err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("write %s to disk: %w", path, err)
	}
	return nil
}

// partial is the whole path of the partial file.
func (o *output) partial() string { return filepath.Join(o.folder.Name(), o.stem+partialSuffix) }

// isThere reports whether the outputs' folder has a file of this final name.
func (o *output) isThere(name string) bool {
	_, err := o.folder.Lstat(name)
	return err == nil
}

// takeOver fills the empty file with the first bytes of another partial file of the
// folder, given by its final name. It copies them, and the other file stays: a process
// that was wrongly declared dead still writes to its own file. took is false if there is
// no such file with so many bytes; the error says why.
func (o *output) takeOver(name string, size int64) (took bool, err error) {
	if size <= 0 {
		return size == 0, nil
	}
	partial := name + partialSuffix
	info, err := o.folder.Lstat(partial)
	switch {
	case err != nil:
		return false, fmt.Errorf("check for it: %w", err)
	case !info.Mode().IsRegular() || info.Size() < size:
		return false, fmt.Errorf("%s is not the file of the checkpoint: it has %d bytes, and at least %d were whole pages", partial, info.Size(), size)
	}
	from, err := o.folder.Open(partial)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", partial, err)
	}
	defer func() { _ = from.Close() }() // it was only read
	if _, err := io.CopyN(o.file, from, size); err != nil {
		return false, errors.Join(fmt.Errorf("copy %s: %w", partial, err), o.restart())
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

// flush makes the pages written so far safe on disk.
func (o *output) flush() error {
	if err := o.flushFile(o.file); err != nil {
		return fmt.Errorf("write %s to disk: %w", o.partial(), err)
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

// discard removes another partial file, given by its final name.
func (o *output) discard(name string) error {
	if err := o.folder.Remove(name + partialSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name+partialSuffix, err)
	}
	return nil
}

// explainGone explains an error on a relative path: if the folder that paths are relative
// to no longer exists, that is the problem, not the path.
func explainGone(path string, err error) error {
	if filepath.IsAbs(path) {
		return err
	}
	if _, gone := os.Getwd(); gone != nil {
		return fmt.Errorf("the folder in which this program was started no longer exists (%w): start it again in a folder that exists, or name the configuration by its whole path", gone)
	}
	return err
}

// checkOutputFolder returns an error if the output's folder is below the configuration's
// folder and that no longer exists: made again, it would contain only the output.
func (j *Job) checkOutputFolder(folder string) error {
	home := filepath.Dir(j.cfg.File)
	if below, err := filepath.Rel(home, folder); err != nil || !filepath.IsLocal(below) {
		return nil
	}
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make the folder %s: the configuration's folder %s no longer exists: restore it, or start the daemon with a configuration that exists", folder, home)
	}
	return nil
}

// gone says what happened to a partial file that is no longer in its place; nil while it
// is there.
func (o *output) gone() error {
	partial := o.partial()
	found, err := os.Lstat(partial)
	if err == nil && o.file != nil {
		mine, unknown := o.file.Stat()
		if unknown != nil || os.SameFile(found, mine) {
			return nil
		}
		return fmt.Errorf("%s is not the file that the run writes: it or its folder was replaced meanwhile; the pages fetched so far are lost", partial)
	}
	if !errors.Is(err, fs.ErrNotExist) { // writing will report it
		return nil
	}
	if err := explainGone(partial, nil); err != nil {
		return err
	}
	missing := "" // the outermost folder that does not exist
	for folder := filepath.Dir(partial); ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			break
		}
		missing = folder
	}
	if missing != "" {
		return fmt.Errorf("the folder %s was deleted or moved while the run wrote %s: the pages fetched so far are lost; the next run makes the folder again", missing, partial)
	}
	return fmt.Errorf("%s was deleted or moved while the run wrote it: the pages fetched so far are lost", partial)
}
