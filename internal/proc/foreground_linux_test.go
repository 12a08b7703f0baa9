package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/terminaltest"
)

// marked is meter for a command whose processes survivors finds.
func marked(t *testing.T, grace, linger time.Duration, script string) *metered {
	return meter(t, grace, linger, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "MARK="+t.Name(), "SCRIPT="+script) }, "sh", "-c", script)
}

// survivors are the processes of the test's command that are alive.
func survivors(t *testing.T) (pids []string) {
	t.Helper()
	for _, path := range must.Get(filepath.Glob("/proc/[0-9]*/environ"))(t) {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("\x00MARK="+t.Name()+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// becomes waits until it is so.
func becomes(t *testing.T, so func() bool) {
	t.Helper()
	for poll := time.NewTicker(time.Millisecond); !so(); {
		<-poll.C
	}
}

// A command ends with all that it has started, wherever that has hidden.
func TestForegroundEndsDescendants(t *testing.T) {
	for name, script := range map[string]string{
		"children":         `sleep 60 & sleep 60 & echo; wait`,
		"orphans":          `(setsid sh -c 'echo; exec sleep 60' &); exec sleep 60`,
		"far descendants":  `sh -c 'sh -c "setsid sh -c \"echo; sleep 60; :\"; :"; :'; :`,
		"closed files":     `(setsid sh -c 'exec sleep 60' <&- >&- 2>&- &); echo; exec sleep 60`,
		"nohup":            `nohup sleep 60 >/dev/null 2>&1 & echo; exec sleep 60`,
		"deaf to TERM":     `trap '' TERM; (setsid sh -c 'echo; while :; do sleep 60; done' &); exec sleep 60`,
		"an unreaped one":  `sleep 0 & echo; exec sleep 60`,
		"a stopped one":    `(setsid sh -c 'echo; kill -STOP $$' &); exec sleep 60`,
		"starting again":   `trap '' TERM; (setsid sh -c 'echo; while :; do sh -c "sleep 60"; done' &); exec sleep 60`,
		"starting others":  `trap '' TERM; i=0; while [ $i -lt 50 ]; do i=$((i+1)); (setsid sh -c 'while :; do sleep 0.01; done' &); done; echo; exec sleep 60`,
		"fleeing by forks": `trap '' TERM; test "$FLED" || { echo; export FLED=1; setsid sh -c "$SCRIPT" & exec sleep 60; }; sh -c "$SCRIPT" &`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := marked(t, 50*time.Millisecond, long, script)
			m.prints()
			must.Do(t, m.stop.Close())
			got := must.Get(m.reports.ReadString('\n'))(t)
			if !strings.HasSuffix(got, ", stopped\n") {
				t.Errorf("reported %q", got)
			}
			_ = m.cmd.Wait()
			check.EqualSlices(t, survivors(t), nil, "alive")
		})
	}
}

// A command that a person has stopped, alone, ends by TERM.
func TestForegroundStopsAStoppedCommand(t *testing.T) {
	t.Parallel()
	m := marked(t, long, long, `trap 'exit 5' TERM; echo $$; kill -STOP $$; while :; do sleep 0.01; done`)
	pid := m.prints()
	becomes(t, func() bool { p, _ := readProcess(pid); return p.state == "T" })
	must.Do(t, m.stop.Close())
	m.ends("code 5, stopped")
}

// lingering leaves two processes in sessions of their own, which wait for the end of its input.
const lingering = `exec 5<&0; for n in 1 2; do (setsid sh -c 'echo; read line' <&5 &); done; exit 6`

// After the command's end, Run waits for descendants.
func TestForegroundLingers(t *testing.T) {
	t.Parallel()
	m := marked(t, long, long, lingering)
	m.reported("2 live")
	m.signal(syscall.SIGUSR1)
	m.signal(syscall.SIGTSTP)
	m.halts()
	m.signal(syscall.SIGCONT)
	must.Do(t, m.input.Close())
	m.ends("code 6")
	check.EqualSlices(t, survivors(t), nil, "alive")
}

// Then, or after a signal, it leaves them alone.
func TestForegroundLeavesDescendants(t *testing.T) {
	t.Parallel()
	for linger, signals := range map[time.Duration][]os.Signal{1: nil, long: {syscall.SIGTERM}, 2 * long: {os.Interrupt}} {
		m := marked(t, long, linger, lingering)
		m.reported("2 live")
		for _, s := range signals {
			m.signal(s)
		}
		m.ends("code 6")
		_, _ = m.prints(), m.prints()
		check.Equal(t, len(survivors(t)), 2, "processes that are left alone")
		must.Do(t, m.input.Close())
		becomes(t, func() bool { return len(survivors(t)) == 0 })
	}
}

// Stop ends them, although the command has ended by itself.
func TestForegroundStopsLingering(t *testing.T) {
	t.Parallel()
	m := marked(t, long, long, lingering)
	m.reported("2 live")
	must.Do(t, m.stop.Close())
	m.ends("code 6")
	check.EqualSlices(t, survivors(t), nil, "alive")
}

// It does so, too, if it comes at the same moment as the command's end.
func TestForegroundStopsAtTheEnd(t *testing.T) {
	t.Parallel()
	for range effort.Of(4, 20) { // either may be noticed first
		m := marked(t, long, long, "echo $$; read line; "+lingering)
		command := m.prints()
		m.signal(syscall.SIGSTOP)
		m.halts()
		must.Get(m.input.WriteString("\n"))(t)
		_, _ = m.prints(), m.prints()
		becomes(t, func() bool { p, _ := readProcess(command); return p.state == "Z" })
		must.Do(t, m.stop.Close())
		m.signal(syscall.SIGCONT)
		report := must.Get(m.reports.ReadString('\n'))(t)
		if report == "2 live\n" {
			report = must.Get(m.reports.ReadString('\n'))(t)
		}
		check.Equal(t, report, "code 6\n")
		_ = m.cmd.Wait()
		check.EqualSlices(t, survivors(t), nil, "alive")
	}
}

// Orphans are reaped while the command runs.
func TestForegroundReapsOrphans(t *testing.T) {
	t.Parallel()
	many := effort.Of(200, 1000)
	m := marked(t, long, long, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); (: & : &); done; echo; read line; exit 8`, many))
	m.prints()
	becomes(t, func() bool {
		n := 0
		for _, path := range must.Get(filepath.Glob("/proc/[0-9]*"))(t) {
			if _, parent := readProcess(filepath.Base(path)); parent == strconv.Itoa(m.cmd.Process.Pid) {
				n++
			}
		}
		return n == 1
	})
	must.Do(t, m.input.Close())
	m.ends("code 8")
}

// In a terminal, the keys reach the command once. A shell sees the job stop, and
// continues it.
func TestForegroundInATerminal(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"stopping itself":    {must.Get(os.Executable())(t), reporting},
		"stopped by the key": {must.Get(os.Executable())(t), reporting, "--"},
	} {
		t.Run(name, func(t *testing.T) {
			master, slave := terminaltest.New(t)
			meter(t, long, long, func(cmd *exec.Cmd) {
				shell := `"$@"; echo "job $?"; fg >/dev/null; echo "job $?"`
				cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-m", "-c", shell, "sh", cmd.Path}, cmd.Args[1:]...)
				cmd.Stdin, cmd.Stdout = slave, slave
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			}, command...)
			output := bufio.NewReader(master)
			must.Get(output.ReadString('\n'))(t)
			for _, step := range []struct{ key, want string }{
				{"\x03", "SIGINT"}, {"\x1a", "job 147"}, {"", "SIGCONT"}, {"\x03", "SIGINT"}, {"\x1c", "SIGQUIT"}, {"\x1c", "SIGQUIT"}, {"", "job 9"},
			} {
				must.Get(master.WriteString(step.key))(t)
				line := must.Get(output.ReadString('\n'))(t)
				for strings.HasSuffix(line, "SIGCONT\r\n") && step.want != "SIGCONT" { // it may come twice
					line = must.Get(output.ReadString('\n'))(t)
				}
				if !strings.HasSuffix(line, step.want+"\r\n") { // after the key's echo
					t.Errorf("after %q: got %q, want %q", step.key, line, step.want)
				}
			}
		})
	}
}

// Undumpable holds for this process.
func TestUndumpable(t *testing.T) {
	dumpable := func() int { return must.Get(unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0))(t) }
	check.Equal(t, dumpable(), 1)
	must.Do(t, Undumpable())
	check.Equal(t, dumpable(), 0)
	must.Do(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
}
