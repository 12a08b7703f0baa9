package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// fileWorld is a watched file, with ways to change it.
type fileWorld struct {
	t    *testing.T
	dir  string
	file *watchedFile
}

func newFileWorld(t *testing.T, text string) *fileWorld {
	t.Helper()
	w := &fileWorld{t: t, dir: t.TempDir()}
	w.file = &watchedFile{path: filepath.Join(w.dir, "costs.toml")}
	w.write("costs.toml", text)
	w.file.mark()
	return w
}

// write writes into the existing file.
func (w *fileWorld) write(name, text string) {
	w.t.Helper()
	must.Do(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

func (w *fileWorld) rename(from, to string) {
	w.t.Helper()
	must.Do(w.t, os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, to)))
}

// link makes a symbolic link, or changes its target in one step.
func (w *fileWorld) link(to, name string) {
	w.t.Helper()
	must.Do(w.t, os.Symlink(to, filepath.Join(w.dir, name+".new")))
	w.rename(name+".new", name)
}

// looks polls the file so often, and fails unless exactly these polls, counted from 1,
// report a change.
func (w *fileWorld) looks(what string, often int, changed ...int) {
	w.t.Helper()
	for look := 1; look <= often; look++ {
		want := len(changed) > 0 && changed[0] == look
		if want {
			changed = changed[1:]
		}
		check.Equal(w.t, w.file.changed(), want, what, "at look", look, "changed")
	}
}

// A change is reported once, when two polls find the same state.
func TestWatchedFile(t *testing.T) {
	w := newFileWorld(t, "one")
	w.looks("nothing", 3)

	w.write("costs.toml", "two")
	w.looks("written", 4, 2)

	w.write("costs.toml~", "three") // as an editor does
	w.rename("costs.toml~", "costs.toml")
	w.looks("replaced", 4, 2)

	w.rename("costs.toml", "costs.toml~")
	w.looks("gone for a moment", 1)
	w.rename("costs.toml~", "costs.toml")
	w.looks("back again", 3)

	at := time.Now().Add(time.Hour)
	must.Do(w.t, os.Chtimes(w.file.path, at, at))
	w.looks("touched", 3)

	must.Do(w.t, os.Remove(w.file.path))
	w.looks("gone", 4, 2)
	w.write("costs.toml", "three")
	w.looks("the same that was gone", 4, 2)
}

// A file that grows is reported only when it is complete.
func TestWatchedFileWhileItIsWritten(t *testing.T) {
	w := newFileWorld(t, "one")
	for _, text := range []string{"t", "tw", "two"} {
		w.write("costs.toml", text)
		w.looks(text, 1)
	}
	w.looks("at rest", 3, 1)
	w.write("costs.toml", "half")
	w.looks("left half-written", 5, 2)
	w.write("costs.toml", "half and half")
	w.looks("the rest", 4, 2)
}

// In Kubernetes costs.toml is a link to ..data/costs.toml, and ..data a link to a folder.
// Each change makes a new folder.
func TestWatchedFileOfKubernetes(t *testing.T) {
	w := &fileWorld{t: t, dir: t.TempDir()}
	folder := func(name, text string) {
		must.Do(w.t, os.Mkdir(filepath.Join(w.dir, name), 0o700))
		w.write(filepath.Join(name, "costs.toml"), text)
	}
	folder("..1", "one")
	w.link("..1", "..data")
	w.link(filepath.Join("..data", "costs.toml"), "costs.toml")
	w.file = &watchedFile{path: filepath.Join(w.dir, "costs.toml")}
	w.file.mark()
	w.looks("nothing", 2)

	folder("..2", "two") // of the same size, perhaps within the same instant
	w.link("..2", "..data")
	must.Do(w.t, os.RemoveAll(filepath.Join(w.dir, "..1")))
	w.looks("another folder", 4, 2)

	folder("..3", "two")
	w.link("..3", "..data")
	w.looks("another folder with the same", 3)
}
