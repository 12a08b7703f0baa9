package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// When the folder cannot be made safe after the file has its final name, that
// name is told: there is no partial file any more.
func TestAFileThatHasItsNameIsNotCalledPartial(t *testing.T) {
	final := filepath.Join(t.TempDir(), "tick.ndjson")
	o, err := createOutput(filepath.Split(final))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is gone")
	o.sync = func(*os.Root, string) error { return broken }
	if err := o.finish(); !errors.Is(err, broken) {
		t.Fatalf("finish: %v", err)
	}
	name, err := o.keep()
	if name != final || err != nil {
		t.Errorf("keep: %q, %v; want %s", name, err, final)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "{}\n" {
		t.Errorf("%s holds %q: %v", name, text, err)
	}
}
