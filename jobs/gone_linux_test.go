package jobs

import (
	"os"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/must"
)

// Where the folder that the daemon was started in is gone, relative paths lead
// nowhere: that is said of commands and of outputs.
func TestADaemonWhoseFolderIsGone(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	t.Setenv("PWD", here)
	must.Do(t, os.RemoveAll(here))
	if where, err := os.Getwd(); err == nil {
		t.Fatalf("the folder is gone, and the system names it %s", where)
	}
	const says = "the folder in which this program was started no longer exists"
	w := commandWorld(t, "", "exit 0")
	w.list[0].cfg = &config.Config{File: "costs.toml"}
	if run := w.onlyRun(); run.Reason != ReasonCommand || !strings.Contains(run.Error, says) {
		t.Errorf("a command: %+v", run)
	}
	w = newWorld(t, setup{job: oneRegion})
	w.list[0].Fetch.Output = "data/{region}/{tick}.ndjson"
	if run := w.onlyRun(); run.Reason != ReasonOutput || !strings.Contains(run.Error, says) || w.used() != 0 {
		t.Errorf("an output: %+v, %d units", run, w.used())
	}
}
