package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// asMeter makes the test's own program one that runs its arguments in the foreground. Its
// value is the grace and how long it lingers.
const asMeter = "QUOTACTL_TEST_AS_METER"

// asCopier has that program report each line that the command prints.
const asCopier = "QUOTACTL_TEST_AS_COPIER"

// long is a wait that does not end in a test.
const long = 10 * time.Minute

func TestMain(m *testing.M) {
	orders := os.Getenv(asMeter)
	switch {
	case orders == "":
		os.Exit(m.Run())
	case os.Args[1] == reporting:
		os.Exit(reportSignals())
	default:
		os.Exit(runForeground(orders))
	}
}

// reporting makes the test's own program a command that prints its number, and then the
// signals that it gets. It stops itself when it gets TSTP, or with one more argument leaves
// that to TSTP, and ends with the second QUIT.
const reporting = "report-signals"

func reportSignals() int {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	if len(os.Args) == 2 {
		signal.Notify(signals, syscall.SIGTSTP)
	}
	_, _ = fmt.Fprintln(os.Stdout, os.Getpid())
	for quits := 0; quits < 2; {
		switch s := (<-signals).(syscall.Signal); s {
		case syscall.SIGTSTP:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case syscall.SIGQUIT:
			quits++
			fallthrough
		default:
			_, _ = fmt.Fprintln(os.Stdout, unix.SignalName(s))
		}
	}
	return 9
}

// runForeground stops the command at the end of file 3, and reports to file 4. The command
// gets neither.
func runForeground(orders string) int {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	report := os.NewFile(4, "report")
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(3, "stop"))
		close(stop)
	}()
	f := &Foreground{
		Command: os.Args[1:], Stop: stop,
		Lives: func(n int) { _, _ = fmt.Fprintln(report, n, "live") },
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if os.Getenv(asCopier) != "" {
		f.Line = func(stream, kept string, length int) { _, _ = fmt.Fprintln(report, stream, length, kept) }
	}
	grace, linger, _ := strings.Cut(orders, " ")
	f.Grace, _ = time.ParseDuration(grace)
	f.Linger, _ = time.ParseDuration(linger)
	code, stopped, err := f.Run(context.Background())
	ending := ""
	if stopped {
		ending = ", stopped"
	}
	if err != nil {
		ending += ", not started: " + err.Error()
	}
	_, _ = fmt.Fprintf(report, "code %d%s\n", code, ending)
	return code
}

// metered is a process that runs a command in the foreground. Its group has no terminal.
type metered struct {
	t               *testing.T
	cmd             *exec.Cmd
	input, stop     *os.File // its standard input; stop ends the command when it is closed
	output, reports *bufio.Reader
}

// meter runs a command; change may change the process that runs it.
func meter(t *testing.T, grace, linger time.Duration, change func(*exec.Cmd), command ...string) *metered {
	t.Helper()
	effort.Processes(t)
	m := &metered{t: t, cmd: exec.Command(must.Get(os.Executable())(t), command...)}
	m.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v %v", asMeter, grace, linger))
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr := must.Get(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	t.Cleanup(func() { _ = stderr.Close() })
	m.cmd.Stderr = stderr
	pipe := func() (read, write *os.File) {
		read, write, err := os.Pipe()
		must.Do(t, err)
		t.Cleanup(func() { _, _ = read.Close(), write.Close() })
		return read, write
	}
	stdin, input := pipe()
	stop, stopped := pipe()
	output, stdout := pipe()
	reports, report := pipe()
	m.cmd.Stdin, m.cmd.Stdout, m.cmd.ExtraFiles = stdin, stdout, []*os.File{stop, report}
	m.input, m.stop, m.output, m.reports = input, stopped, bufio.NewReader(output), bufio.NewReader(reports)
	if change != nil {
		change(m.cmd)
	}
	must.Do(t, m.cmd.Start())
	for _, theirs := range []*os.File{stdin, stop, stdout, report} {
		_ = theirs.Close()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("on standard error:\n%s", must.Get(os.ReadFile(stderr.Name()))(t))
		}
	})
	t.Cleanup(func() { // after a failure; else it has ended
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
		_ = m.cmd.Wait()
	})
	return m
}

// prints returns the next line of the command's output.
func (m *metered) prints() string {
	m.t.Helper()
	return strings.TrimSpace(must.Get(m.output.ReadString('\n'))(m.t))
}

// reported expects a line of the reports.
func (m *metered) reported(want string) {
	m.t.Helper()
	check.Equal(m.t, strings.TrimSpace(must.Get(m.reports.ReadString('\n'))(m.t)), want)
}

// ends expects the last report, and the exit code in it.
func (m *metered) ends(want string) {
	m.t.Helper()
	m.reported(want)
	_ = m.cmd.Wait()
	code := 0
	_ = must.Get(fmt.Sscanf(want, "code %d", &code))(m.t)
	check.Equal(m.t, m.cmd.ProcessState.ExitCode(), code, "exit code")
}

func (m *metered) signal(s os.Signal) {
	m.t.Helper()
	must.Do(m.t, m.cmd.Process.Signal(s))
}
