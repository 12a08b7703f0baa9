package jobs

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// An output's folder that is deleted, or replaced, while a run writes to it: the run
// fails and names it, no further page is charged, and the record names no file that is not
// there. The next run makes the folder again.
func TestAnOutputWhoseFolderIsDeleted(t *testing.T) {
	remove := func(parts ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			check.NoError(t, os.RemoveAll(filepath.Join(append([]string{dir}, parts...)...)))
		}
	}
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dir string)
		at    int // while this page is on its way
		pages int
		says  string
	}{
		"the outermost":      {remove("data"), 2, 2, "DIR/data was deleted or moved"},
		"the region's":       {remove("data", "trending", "US"), 2, 2, "DIR/data/trending/US was deleted or moved"},
		"with the last page": {remove("data"), 4, 4, "DIR/data was deleted or moved"},
		"moved": {func(t *testing.T, dir string) {
			check.NoError(t, os.Rename(filepath.Join(dir, "data"), filepath.Join(dir, "moved")))
		}, 2, 2, "DIR/data was deleted or moved"},
		"the file alone": {func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "data", "trending", "US", "*"))
			if err != nil || len(files) != 1 || os.Remove(files[0]) != nil {
				t.Error(files, err)
			}
		}, 2, 2, ".ndjson.partial was deleted or moved"},
		"another in its place": {func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "data", "trending", "US", "*"))
			if err != nil || len(files) != 1 || os.Remove(files[0]) != nil || os.WriteFile(files[0], []byte("theirs"), 0o600) != nil {
				t.Error(files, err)
			}
		}, 2, 2, "is not the file that the run writes"},
	} {
		inBubble(t, name, func(t *testing.T) {
			asked := 0
			var w *world
			w = newWorld(t, setup{job: oneRegion, upstream: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				if asked++; asked == test.at {
					test.spoil(t, w.dir)
				}
				w.sandbox.ServeHTTP(out, r)
			})})
			run := w.once().Runs[0]
			says := strings.ReplaceAll(test.says, "DIR", w.dir)
			if run.Outcome != Failed || run.Reason != ReasonOutput || !strings.Contains(run.Error, says) || run.Pages != test.pages || run.Output != "" {
				t.Errorf("run %+v, want %q after %d pages", run, says, test.pages)
			}
			check.Equal(t, w.used(), int64(test.pages), "units for", test.pages, "pages")
			if run := w.once().Runs[0]; run.Outcome != Succeeded || run.Pages != 4 {
				t.Errorf("the next run: %+v", run)
			}
		})
	}
}

// A command whose folder is gone is not said to be missing itself.
func TestACommandWhoseFolderIsGone(t *testing.T) {
	w := commandWorld(t, "", "exit 0")
	must.Do(t, os.RemoveAll(w.dir))
	run := w.onlyRun()
	if run.Outcome != Failed || run.Reason != ReasonCommand || !strings.Contains(run.Error, "the configuration's folder "+w.dir+", in which commands run, no longer exists") || strings.Contains(run.Error, "is it executable") {
		t.Errorf("run %+v", run)
	}
}

// No output makes the configuration's folder again, which would hide that it is gone.
func TestAnOutputWhoseConfigurationIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.list[0].cfg = &config.Config{File: filepath.Join(w.dir, "costs.toml")}
		must.Do(t, os.RemoveAll(w.dir))
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != ReasonOutput || !strings.Contains(run.Error, "the configuration's folder "+w.dir+" no longer exists") || w.used() != 0 {
			t.Errorf("run %+v, %d units", run, w.used())
		}
		if _, err := os.Stat(w.dir); !os.IsNotExist(err) {
			t.Errorf("the folder is there again: %v", err)
		}
	})
}

// A page with a byte that is not UTF-8 fails with its place, and nothing of it is
// written: JSON that is not UTF-8 cannot be taken apart by whoever reads the file.
func TestAPageThatIsNotUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := newWorld(t, setup{job: oneRegion, fetch: `items = "items"`, upstream: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 1 {
				_, _ = out.Write([]byte(`{"items":["caf\u00e9","café"],"nextPageToken":"2"}`))
				return
			}
			_, _ = out.Write([]byte("{\"items\":[\"one\",\n\"caf\xe9\"]}"))
		})})
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != ReasonBody || run.Pages != 1 || !strings.HasPrefix(run.Error, "page 2: the body is not UTF-8: byte 0xe9 at offset 21 (line 2, byte 5 of that line)") {
			t.Errorf("run %+v", run)
		}
		if text, err := os.ReadFile(run.Output); err != nil || string(text) != "\"caf\\u00e9\"\n\"café\"\n" || !strings.HasSuffix(run.Output, partialSuffix) {
			t.Errorf("%s holds %q: %v", run.Output, text, err)
		}
	})
}

// When the folder cannot be made safe after the file has its final name, the record has that
// name: there is no partial file any more.
func TestAFileThatHasItsNameIsNotCalledPartial(t *testing.T) {
	final := filepath.Join(t.TempDir(), "tick.ndjson")
	o := must.Get(createOutput(filepath.Dir(final), filepath.Base(final), 1))(t)
	must.Do(t, o.write([]byte("{}\n")))
	broken := errors.New("the disk is gone")
	o.sync = func(*os.Root, string) error { return broken }
	must.Is(t, o.finish(), broken, "finish")
	name, err := o.keep()
	if name != final || err != nil {
		t.Errorf("keep: %q, %v; want %s", name, err, final)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "{}\n" {
		t.Errorf("%s holds %q: %v", name, text, err)
	}
}
