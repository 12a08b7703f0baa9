package outage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The host's directory is made with all that stands above it, but for the folder of a
// configuration that is gone.
func TestMakeDir(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "gone")
	if _, err := makeDir(home, DefaultDir, "outage", "a"); err == nil || !strings.Contains(err.Error(), home+", the configuration's folder, in which") {
		t.Errorf("beside a configuration that is gone: %v", err)
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("its folder is there again: %v", err)
	}
	for _, dir := range []string{filepath.Join(home, "state", "outage", "a"), filepath.Join(home, DefaultDir, "outage", "a")} {
		if made, err := makeDir(dir); err != nil || made != dir {
			t.Errorf("%s: %s, %v", dir, made, err)
		}
	}
}
