package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// commandWorld has one job, which runs a shell's script in its first argument.
func commandWorld(t *testing.T, keys, script string) *world {
	t.Helper()
	w := newWorld(t, setup{more: fmt.Sprintf("[job.script]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n%s\ncommand = [\"sh\", \"-c\", %q, \"{job}\", \"{region}\", \"{tick}\"]\n", keys, script)})
	w.list = w.list[1:]
	return w
}

// onlyRun runs one pass that has one run.
func (w *world) onlyRun() Run {
	w.t.Helper()
	p := w.once()
	if len(p.Runs) != 1 {
		w.t.Fatalf("runs %+v, want one", p.Runs)
	}
	return p.Runs[0]
}

func TestCommandEnds(t *testing.T) {
	for script, want := range map[string]Run{
		"exit 0":                 {Outcome: Succeeded},
		"echo trouble >&2":       {Outcome: Succeeded},
		"exit 75":                {Outcome: Exhausted, Reason: "exit 75"},
		"exit 3":                 {Outcome: Failed, Reason: "exit 3", Error: "the command ended with exit code 3"},
		"kill -9 $$":             {Outcome: Failed, Reason: "signal killed", Error: "the command was ended by signal killed"},
		"test -t 0 || read line": {Outcome: Failed, Reason: "exit 1", Error: "the command ended with exit code 1"}, // nothing to read
	} {
		w := commandWorld(t, "", script)
		if got := w.onlyRun(); got != want {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
}

// A program that is not there fails its run, not the pass's other regions.
func TestCommandMissing(t *testing.T) {
	w := commandWorld(t, `regions = ["US", "GB"]`, "")
	w.list[0].Command = []string{"./not-there"}
	p := w.once()
	for _, run := range p.Runs {
		if run.Outcome != Failed || run.Reason != ReasonCommand || !strings.Contains(run.Error, "not-there") {
			t.Errorf("%+v, want a failed start", run)
		}
	}
}

// The environment and the arguments are what was told, and no shell sees them.
func TestCommandEnvironment(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, `printf '%s\n' "$0" "$1" "$2" "$PWD" "$QUOTACTL_CONFIG" "$QUOTACTL_BUDGET" "$QUOTACTL_JOB" "$QUOTACTL_REGION" "$QUOTACTL_RUN" "$QUOTACTL_TICK" "$QUOTACTL_STORE"`)
	w.options.StoreURL = "sqlite:elsewhere.db"
	w.list[0].Command = append(w.list[0].Command, "$HOME; rm -rf {region}", "`id`")
	w.list[0].Command[2] += ` "$3" "$4"`
	p := w.once()
	if p.Outcome != Succeeded {
		t.Fatalf("%+v", p)
	}
	tick := p.Tick.Format(TickFormat)
	var got []string
	for line := range strings.Lines(w.log.String()) {
		if _, text, ok := strings.Cut(line, "msg=output "); ok {
			_, text, _ = strings.Cut(text, "line=")
			got = append(got, strings.Trim(strings.TrimSpace(text), `"`))
		}
	}
	dir, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", got, []string{
		"script", "US", tick, dir, filepath.Join(w.dir, "costs.toml"), "youtube/key1", "script", "US", "script/" + tick + "/US", tick, "sqlite:elsewhere.db",
		"$HOME; rm -rf US", "`id`",
	})
}

// Lines go into the log: long ones cut and marked, the last without an end too,
// and nothing that a terminal or a thief could use.
func TestCommandOutput(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, fmt.Sprintf(`echo one; printf 'two\033[31m\n' >&2; head -c 20000 /dev/zero | tr '\0' x; echo; echo '%s'; printf last`, secretKey))
	if run := w.onlyRun(); run.Outcome != Succeeded {
		t.Fatalf("%+v", run)
	}
	w.logged("msg=output", "line=one", "stream=stdout", "job=script", "region=US", "run=script/")
	w.logged("line=\"two [31m\"", "stream=stderr")
	w.logged(strings.Repeat("x", maxLine)+" (cut, "+fmt.Sprint(20000-maxLine)+" bytes more)", "stream=stdout")
	w.logged("line=[secret]")
	w.logged("line=last")
	if strings.Contains(w.log.String(), secretKey) {
		t.Error("the secret is in the log")
	}
}

// A megabyte without a line's end is one line of the log, of bounded length.
func TestCommandOutputWithoutLines(t *testing.T) {
	w := commandWorld(t, "", `head -c 1048576 /dev/zero | tr '\0' y`)
	if run := w.onlyRun(); run.Outcome != Succeeded {
		t.Fatalf("%+v", run)
	}
	w.logged(fmt.Sprintf("(cut, %d bytes more)", 1<<20-maxLine))
	if n := len(w.log.String()); n > 2*maxLine {
		t.Errorf("the log has %d bytes", n)
	}
}

// fifo is a pipe with a name: reading it ends when all who write to it have.
func fifo(t *testing.T, dir string) *os.File {
	t.Helper()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// ends waits until the writers of a fifo are gone.
func ends(t *testing.T, file *os.File) {
	t.Helper()
	if err := file.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, file); err != nil {
		t.Errorf("something the command started still runs: %v", err)
	}
}

// Out of time: the group is told to end, and killed when it does not.
func TestCommandTimeout(t *testing.T) {
	w := commandWorld(t, "timeout = \"1s\"\ngrace = \"0s\"", `trap '' TERM; sleep 60 > fifo & echo up; wait; sleep 60`)
	file := fifo(t, w.dir)
	run := w.onlyRun()
	if run.Outcome != TimedOut || run.Reason != ReasonTimeout {
		t.Errorf("%+v, want timed out", run)
	}
	w.logged("line=up")
	w.logged("command killed")
	ends(t, file)

	w = commandWorld(t, "timeout = \"1s\"\ngrace = \"1h\"", `trap 'echo ending; exit 0' TERM; sleep 60 & wait`)
	if run := w.onlyRun(); run.Outcome != TimedOut {
		t.Errorf("%+v, want timed out", run)
	}
	w.logged("line=ending") // it was let end by itself
}

// What a command leaves behind does not hang the run that it holds the output of.
func TestCommandLeavesSomethingBehind(t *testing.T) {
	w := commandWorld(t, "", `sleep 60 > fifo 2>&1 & sleep 60 & echo done`)
	file := fifo(t, w.dir)
	if run := w.onlyRun(); run.Outcome != Succeeded {
		t.Errorf("%+v, want succeeded", run)
	}
	w.logged("line=done")
	w.logged("level=WARN", "still held its output")
	ends(t, file)
}

// A drain tells a command to end; it is not killed before its grace is over.
func TestCommandDrain(t *testing.T) {
	w := commandWorld(t, `regions = ["US", "GB"]`, `echo up > fifo; trap 'echo ending; exit 0' TERM; sleep 60 & wait`)
	file := fifo(t, w.dir)
	drain := make(chan struct{})
	go func() {
		for { // a fifo that nobody has opened yet reads as ended
			if n, err := file.Read(make([]byte, 8)); n > 0 || err != nil && !errors.Is(err, io.EOF) {
				close(drain)
				return
			}
		}
	}()
	passes := w.runner().Once(t.Context(), drain)
	equal(t, "outcomes", outcomes(passes[0]), []string{"US skipped drained", "GB skipped drained"})
	w.logged("line=ending")
	if state := w.state(); state.NextRegion != "GB" {
		t.Errorf("the next pass begins with %q, want the region that was not started", state.NextRegion)
	}
}

// After exit 75 no further region is started.
func TestCommandExhausted(t *testing.T) {
	w := commandWorld(t, `regions = ["US", "GB", "DE"]`, `test "$1" = US || exit 75`)
	equal(t, "outcomes", outcomes(w.once()), []string{"US succeeded", "GB exhausted exit 75", "DE skipped exhausted"})
}

// At most as many run at once as the job says.
func TestCommandParallel(t *testing.T) {
	w := commandWorld(t, "regions = [\"US\", \"GB\", \"DE\", \"FR\", \"IN\", \"BR\"]\nparallel = 2",
		`mkdir "slot.$$"; ls -d slot.* | wc -l >> seen; mkdir a 2>/dev/null || mkdir b 2>/dev/null || exit 9; ls -d a b 2>/dev/null | tail -1 >> both; sleep 0.05; rmdir b 2>/dev/null || rmdir a; rmdir "slot.$$"`)
	p := w.once()
	for _, run := range p.Runs {
		if run.Outcome != Succeeded {
			t.Errorf("%+v: three ran at once", run)
		}
	}
	both, err := os.ReadFile(filepath.Join(w.dir, "both"))
	if err != nil || !strings.Contains(string(both), "b") {
		t.Errorf("never two at once: %q, %v", both, err)
	}
}

// What a command charged under its run's label is the run's.
func TestCommandUnits(t *testing.T) {
	w := commandWorld(t, `regions = ["US"]`, "true")
	tick := w.once().Tick.UTC()
	label := w.list[0].runLabel(tick, "US")
	b := w.options.Budgets["youtube/key1"]
	units := int64(7)
	for range 2 {
		if _, err := b.Charge(context.Background(), budget.Call{Operation: "videos.list", Units: &units, Labels: budget.Labels{Run: label}}); err != nil {
			t.Fatal(err)
		}
	}
	p := &pass{Runner: w.runner(), job: w.list[0], budget: b, hard: t.Context(), log: w.options.Log}
	if units, calls := p.spentBy(label, time.Second, w.options.Log); units != 14 || calls != 2 {
		t.Errorf("%d units in %d calls, want 14 in 2", units, calls)
	}
}
