package proc

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The exit code is that of shells.
func TestForegroundCodes(t *testing.T) {
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		must.Do(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	for want, command := range map[string][]string{
		"code 0":   {"true"},
		"code 3":   {"sh", "-c", "exit 3"},
		"code 137": {"sh", "-c", "kill -KILL $$"},
		"code 143": {"sh", "-c", "kill -TERM $$"},
		"code 7":   {file("script", "exit $1", 0o700), "7"},
		`code 127, not started: exec: "not-there": executable file not found in $PATH`: {"not-there"},
		"code 126, not started: ":       {file("data", "", 0o600)},
		"code 126, not started: exec: ": {t.TempDir()},
		"code 127, not started: fork":   {file("uninterpreted", "#!/not/there\n", 0o700)},
	} {
		m := meter(t, long, long, nil, command...)
		got := must.Get(m.reports.ReadString('\n'))(t)
		if !strings.HasPrefix(got, want) || len(want) == len("code 0") && got != want+"\n" {
			t.Errorf("%q: got %q, want %q", command, got, want)
		}
	}
}

// The command has the process's own files, also those beyond the third.
func TestForegroundFiles(t *testing.T) {
	m := meter(t, long, long, func(cmd *exec.Cmd) {
		read, write, err := os.Pipe()
		must.Do(t, err)
		must.Get(write.WriteString("fifth\n"))(t)
		must.Do(t, write.Close())
		t.Cleanup(func() { _ = read.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, read)
	}, "sh", "-c", "cat <&5; for n in 3 4; do test -e /dev/fd/$n && echo leaked $n; done; cat")
	check.Equal(t, m.prints(), "fifth")
	must.Get(m.input.WriteString("input\n"))(t)
	check.Equal(t, m.prints(), "input")
	must.Do(t, m.input.Close())
	m.ends("code 0")
}

// Signals that no terminal has sent are passed on.
func TestForegroundPassesSignalsOn(t *testing.T) {
	m := meter(t, long, long, nil, must.Get(os.Executable())(t), reporting)
	m.prints()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGQUIT} {
		if signal.Ignored(s) { // as where nohup runs the tests: then it is not passed on
			continue
		}
		m.signal(s)
		check.Equal(t, m.prints(), unix.SignalName(s))
	}
	m.signal(syscall.SIGQUIT)
	m.ends("code 9")
}

// A signal that nohup has ignored stays ignored.
func TestForegroundIgnores(t *testing.T) {
	m := meter(t, long, long, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP INT; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	}, "sh", "-c", `kill -HUP $$; kill -INT $$; echo alive; kill -HUP $PPID; kill -INT $PPID; exit 4`)
	check.Equal(t, m.prints(), "alive")
	m.ends("code 4")
}

// This process stops when the command stops, and CONT continues both.
func TestForegroundStopsWithTheCommand(t *testing.T) {
	m := meter(t, long, long, nil, must.Get(os.Executable())(t), reporting, "--")
	command := m.prints()
	for _, stop := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN} {
		kill(t, command, stop)
		m.halts()
		m.signal(syscall.SIGCONT)
		check.Equal(t, m.prints(), "SIGCONT")
	}
	group := -m.cmd.Process.Pid // which a shell signals
	must.Do(t, syscall.Kill(group, syscall.SIGTSTP))
	m.halts()
	must.Do(t, syscall.Kill(group, syscall.SIGCONT))
	check.Equal(t, m.prints(), "SIGCONT")
	for m.signal(syscall.SIGQUIT); m.prints() == "SIGCONT"; { // which comes twice
	}
	m.signal(syscall.SIGQUIT)
	m.ends("code 9")
}

// halts waits until the process itself is stopped.
func (m *metered) halts() {
	m.t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(m.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			must.Do(m.t, err)
			must.Equal(m.t, status.Stopped(), true, "the process has stopped instead of ended")
			return
		}
	}
}

func kill(t *testing.T, pid string, s syscall.Signal) {
	t.Helper()
	number := 0
	must.Get(fmt.Sscan(pid, &number))(t)
	must.Do(t, syscall.Kill(number, s))
}

// Stop asks the command to end, and kills it after the grace.
func TestForegroundStop(t *testing.T) {
	for script, want := range map[string]string{
		`trap 'exit 5' TERM; echo; while :; do sleep 0.01; done`: "code 5, stopped",
		`echo; exec sleep 60`: "code 143, stopped",
	} {
		m := meter(t, long, long, nil, "sh", "-c", script)
		m.prints()
		must.Do(t, m.stop.Close())
		m.ends(want)
	}
	m := meter(t, 1, long, nil, "sh", "-c", `trap '' TERM; echo; while :; do sleep 0.01; done`)
	m.prints()
	must.Do(t, m.stop.Close())
	m.ends("code 137, stopped")
}
