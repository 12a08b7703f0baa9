package effort

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

// failing records what a test that failed would have printed.
type failing struct {
	testing.TB
	cleanups []func()
	log      string
}

func (f *failing) Helper()           {}
func (f *failing) Name() string      { return "TestWalk/it's (here)" }
func (f *failing) Failed() bool      { return true }
func (f *failing) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }
func (f *failing) Log(args ...any)   { f.log += fmt.Sprint(args...) }

// The line that a failed test prints is a command for the shell, with its seed,
// its sizes and its name, and nothing else that the environment says.
func TestAFailedTestSaysHowToRepeatIt(t *testing.T) {
	t.Setenv(full, "")
	t.Setenv("SOME_SEED", "12_345")
	f := &failing{TB: t}
	check.Equal(t, Seed(f, "SOME_SEED"), 12345, "seed, want that of the variable")
	t.Setenv(full, "1")
	t.Setenv("QUOTACTL_WALK_STEPS", "8_000")
	t.Setenv("QUOTACTL_TOKEN", "s3cret")
	f.cleanups[0]()
	command, found := strings.CutPrefix(f.log, "to repeat: ")
	if !found {
		t.Fatalf("printed %q", f.log)
	}
	script := `go() { printf '%s|' "$PWD" "$SOME_SEED" "$QUOTACTL_TEST_FULL" "$QUOTACTL_WALK_STEPS" "$QUOTACTL_TOKEN" "$@"; }; ` + command
	run := exec.Command("sh", "-c", script)
	run.Env = []string{"PATH=" + os.Getenv("PATH")} // the command alone says it
	out, err := run.CombinedOutput()
	if want := folder + `|12345|1|8_000||test|-count=1|-run|^TestWalk$/^it's \(here\)$|.|`; err != nil || string(out) != want {
		t.Errorf("%s\nruns %s (%v)\nwant %s", command, out, err, want)
	}
}

func TestSeedsDiffer(t *testing.T) {
	if a, b := Seed(t, "NO_SUCH_SEED"), Seed(t, "NO_SUCH_SEED"); a == b {
		t.Errorf("both seeds are %d", a)
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		set  string
		want int
	}{{"", 3}, {"1", 100}} {
		t.Setenv(full, c.set)
		check.Equal(t, Of(3, 100), c.want, full, "=", c.set)
	}
}
