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
	log   string
	fatal string
}

func (f *failing) Helper()         {}
func (f *failing) Name() string    { return "TestWalk/it's (here)" }
func (f *failing) Log(args ...any) { f.log += fmt.Sprint(args...) }
func (f *failing) Fatalf(format string, args ...any) {
	f.fatal += fmt.Sprintf(format, args...)
}

// The line that a failed test prints is a command for the shell, with its seed,
// its effort and its name, and nothing else that the environment says.
func TestAFailedTestSaysHowToRepeatIt(t *testing.T) {
	for _, effort := range []string{"", "full"} {
		t.Setenv(effortVariable, effort)
		t.Setenv(seedVariable, "12_345")
		t.Setenv("QUOTACTL_TOKEN", "s3cret")
		f := &failing{TB: t}
		check.Equal(t, Seed(f), 12345, "seed, want that of the variable")
		command, found := strings.CutPrefix(f.log, "to repeat: ")
		if !found {
			t.Fatalf("printed %q", f.log)
		}
		script := `go() { printf '%s|' "$PWD" "$QUOTACTL_SEED" "$QUOTACTL_EFFORT" "$QUOTACTL_TOKEN" "$@"; }; ` + command
		run := exec.Command("sh", "-c", script)
		run.Env = []string{"PATH=" + os.Getenv("PATH")} // the command alone says it
		out, err := run.CombinedOutput()
		if effort == "" {
			effort = "small"
		}
		if want := folder + `|12345|` + effort + `||test|-count=1|-timeout|0|-run|^TestWalk$/^it's \(here\)$|.|`; err != nil || string(out) != want {
			t.Errorf("%s\nruns %s (%v)\nwant %s", command, out, err, want)
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	t.Setenv(seedVariable, "")
	if a, b := Seed(t), Seed(t); a == b {
		t.Errorf("both seeds are %d", a)
	}
}

func TestASeedIsANumber(t *testing.T) {
	t.Setenv(seedVariable, "seven")
	f := &failing{TB: t}
	Seed(f)
	check.Equal(t, f.fatal, `QUOTACTL_SEED: strconv.ParseUint: parsing "seven": invalid syntax: use a number`)
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		effort string
		two    int
		all    string
	}{{"", 3, "a"}, {"small", 3, "a"}, {"ci", 100, "b"}, {"full", 100, "c"}, {"soak", 100, "d"}} {
		t.Setenv(effortVariable, c.effort)
		check.Equal(t, Of(3, 100), c.two, "of two sizes for", c.effort)
		check.Equal(t, Of("a", "b", "c", "d"), c.all, "of four sizes for", c.effort)
	}
}

// A misspelt effort ends the tests, which would otherwise run with another one.
func TestAnUnknownEffortIsAnError(t *testing.T) {
	t.Setenv(effortVariable, "fulll")
	defer func() {
		check.Equal(t, fmt.Sprint(recover()), `QUOTACTL_EFFORT is "fulll": use one of small, ci, full, soak`)
	}()
	t.Error("the size is ", Of(1, 2))
}
