package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// explainGone is an error that a relative path has met, where the folder that paths are
// relative to is gone: that is what is wrong, and not the path.
func explainGone(path string, err error) error {
	if filepath.IsAbs(path) {
		return err
	}
	if _, gone := os.Getwd(); gone != nil {
		return fmt.Errorf("the folder that this program was started in is gone (%w): start it again in one that is there, or name the configuration by its whole path", gone)
	}
	return err
}

// checkFolder fails where the folder in which commands run is gone.
func checkFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is gone, the folder of the configuration, in which commands run: put it back, or start the daemon with a configuration that is there", path)
	case err != nil:
		return fmt.Errorf("look for the folder in which commands run: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is no folder any more, and commands run in it: put it back", path)
	}
	return nil
}

// checkOutputFolder fails where an output would stand below the configuration's folder,
// and that is gone: made again, it would hold the output alone.
func (j *Job) checkOutputFolder(folder string) error {
	home := filepath.Dir(j.config)
	if below, err := filepath.Rel(home, folder); err != nil || !filepath.IsLocal(below) {
		return nil
	}
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make the folder %s: %s is gone, the folder of the configuration: put it back, or start the daemon with a configuration that is there", folder, home)
	}
	return nil
}

// gone says what has become of a partial file that is not in its place any more; nil
// while it is there.
func (o *output) gone() error {
	partial := o.final + partialSuffix
	found, err := os.Lstat(partial)
	if err == nil && o.file != nil {
		mine, unknown := o.file.Stat()
		if unknown != nil || os.SameFile(found, mine) {
			return nil
		}
		return fmt.Errorf("%s is another file than the one that the run writes: it, or its folder, was replaced meanwhile; what was fetched so far is lost", partial)
	}
	if !errors.Is(err, fs.ErrNotExist) { // whatever it is, writing will tell
		return nil
	}
	if err := explainGone(partial, nil); err != nil {
		return err
	}
	missing := "" // the outermost folder that is not there
	for folder := filepath.Dir(partial); ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			break
		}
		missing = folder
	}
	if missing != "" {
		return fmt.Errorf("the folder %s was deleted or moved while the run wrote %s: what was fetched so far is lost; the next run makes the folder again", missing, partial)
	}
	return fmt.Errorf("%s was deleted or moved while the run wrote it: what was fetched so far is lost", partial)
}
