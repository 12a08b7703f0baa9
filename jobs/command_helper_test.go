package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// asCommand makes the test's own program one that a command job starts.
const asCommand = "QUOTACTL_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) == "" {
		os.Exit(m.Run())
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// programs are the commands of the tests, by their first argument.
var programs = map[string]func(args []string) error{
	"tell":     tell,
	"call":     call,
	"stubborn": stubborn,
	"tidy":     tidy,
	"leave":    leave,
	"print":    printBytes,
	"fail":     fail,
	"daemon":   daemonProcess,
}

// told is what a command was started with.
type told struct {
	Args, Env []string
	Dir       string
	Input     string
}

// tell writes down its arguments, environment, folder and input.
func tell(args []string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	text, err := json.Marshal(told{args[1:], os.Environ(), dir, string(input)})
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], text, 0o600)
}

// callIn tells the test that a process is there; the connection ends with it.
func callIn(name string) (net.Conn, error) {
	conn, err := net.Dial("unix", "calls")
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(conn, name)
	return conn, err
}

// call calls in and ends when it is let go, with an argument more by a failure.
func call(args []string) error {
	conn, err := callIn(args[0])
	if err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 1)); err == nil && len(args) > 1 {
		err = errors.New(args[1])
	}
	return err
}

// another starts a program in the same group that outlives this one.
func another(words ...string) error {
	cmd := exec.Command(os.Args[0], words...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Start()
}

// stubborn does not end when told to, and neither does what it starts.
func stubborn(args []string) error {
	signal.Ignore(syscall.SIGTERM)
	if args[0] == "parent" {
		if err := another("stubborn", "child"); err != nil {
			return err
		}
	}
	return call(args)
}

// tidy ends at once when told to; what it starts takes its leave first.
func tidy(args []string) error {
	if args[0] == "parent" {
		if err := another("tidy", "child"); err != nil {
			return err
		}
		return call(args)
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	conn, err := callIn(args[0])
	if err != nil {
		return err
	}
	<-terms
	if _, err := fmt.Fprintln(conn, "ending"); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	fmt.Println("tidied up")
	return nil
}

// leave leaves something behind that holds its output, in its process group or,
// with an argument, out of it.
func leave(args []string) error {
	cmd := exec.Command(os.Args[0], "stubborn", "child")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: len(args) > 0}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println("done")
	return call([]string{"parent"})
}

// fail leaves something behind in its group that holds no output, and fails when it
// is let go; the second time it is started it ends well.
func fail(args []string) error {
	if _, err := os.Stat(args[0]); err == nil {
		return nil
	}
	if err := os.WriteFile(args[0], nil, 0o600); err != nil {
		return err
	}
	if err := exec.Command(os.Args[0], "stubborn", "child").Start(); err != nil {
		return err
	}
	return call([]string{"parent", "failed"})
}

// printBytes prints so many bytes of a text over and over, without a line's end.
func printBytes(args []string) error {
	var n int64
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return err
	}
	_, err := io.CopyN(os.Stdout, strings.NewReader(strings.Repeat(args[1], int(n)/len(args[1])+1)), n)
	return err
}

// programWorld has one job, which runs one of the programs.
func programWorld(t *testing.T, keys string, words ...string) *world {
	t.Helper()
	t.Setenv(asCommand, "1")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's program lingers otherwise
	self := must.Get(os.Executable())(t)
	command, err := json.Marshal(append([]string{self}, words...)) // TOML reads it too
	must.Do(t, err)
	w := newWorld(t, setup{more: fmt.Sprintf("[job.script]\nbudget = \"youtube/key1\"\nschedule = \"@daily\"\n%s\ncommand = %s\n", keys, command)})
	w.list = w.list[1:]
	return w
}

// patience is how long a process is waited for before a test fails.
const patience = 5 * time.Minute

// caller is a process that has called in.
type caller struct {
	t     *testing.T
	name  string
	conn  net.Conn
	lines *bufio.Scanner
}

// listen lets the processes of a world call in.
func (w *world) listen() *net.UnixListener {
	w.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, "calls"), Net: "unix"})
	must.Do(w.t, err)
	w.t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// caller waits until a process has called in.
func (w *world) caller(listener *net.UnixListener) *caller {
	w.t.Helper()
	c := w.callerWithin(patience, listener)
	if c == nil {
		w.t.Fatalf("nothing has called in:\n%s", w.log)
	}
	return c
}

// callerWithin waits for a process that calls in; nil where none does in time.
func (w *world) callerWithin(wait time.Duration, listener *net.UnixListener) *caller {
	w.t.Helper()
	must.Do(w.t, listener.SetDeadline(time.Now().Add(wait)))
	conn, err := listener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	must.Do(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	c := &caller{t: w.t, conn: conn, lines: bufio.NewScanner(conn)}
	c.name = c.hears()
	return c
}

// callers waits until two processes, parent and child, have called in.
func (w *world) callers(listener *net.UnixListener) (parent, child *caller) {
	w.t.Helper()
	parent, child = w.caller(listener), w.caller(listener)
	if parent.name == "child" {
		parent, child = child, parent
	}
	must.Equal(w.t, parent.name, "parent")
	must.Equal(w.t, child.name, "child")
	return parent, child
}

// hears is the next line of a process; empty when it has ended.
func (c *caller) hears() string {
	c.t.Helper()
	must.Do(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	c.lines.Scan()
	if err := c.lines.Err(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("a process says nothing and does not end: %v", err)
	}
	return c.lines.Text()
}

// letGo lets a process go on.
func (c *caller) letGo() {
	c.t.Helper()
	must.Get(c.conn.Write([]byte{1}))(c.t)
}

// ends waits for a process's end.
func (c *caller) ends() {
	c.t.Helper()
	must.Equal(c.t, c.hears(), "", "a process says …its end")
}

// begin starts one pass of the only job.
func (w *world) begin(ctx context.Context, drain <-chan struct{}) <-chan Pass {
	w.t.Helper()
	r, ended := w.runner(), make(chan Pass, 1)
	go func() {
		for _, p := range r.Once(ctx, drain) {
			ended <- p
		}
	}()
	return ended
}
