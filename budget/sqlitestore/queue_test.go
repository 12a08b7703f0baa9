package sqlitestore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// queueOrders are for a process that takes the file's lock, and keeps it.
type queueOrders struct{ Path string }

// waitInQueue takes the lock, says so, and keeps it until its input ends.
func waitInQueue(orders string) error {
	var o queueOrders
	if err := json.Unmarshal([]byte(orders), &o); err != nil {
		return err
	}
	store, err := sqlitestore.Open(context.Background(), o.Path, sqlitestore.Options{Timeout: patience})
	if err != nil {
		return err
	}
	if err := say("open"); err != nil {
		return err
	}
	if err := sqlitestore.TakeLock(context.Background(), store); err != nil {
		return err
	}
	if err := say("taken"); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// inQueue is a process that waits for the lock, or has it.
type inQueue struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *bufio.Reader
	end  func() error
}

func startInQueue(t *testing.T, path string) *inQueue {
	t.Helper()
	q := &inQueue{t: t, cmd: helper(t, "queue", queueOrders{path})}
	q.cmd.Stderr = os.Stderr
	out := must.Get(q.cmd.StdoutPipe())(t)
	in := must.Get(q.cmd.StdinPipe())(t)
	q.said, q.end = bufio.NewReader(out), in.Close
	must.Do(t, q.cmd.Start())
	t.Cleanup(func() {
		_ = q.cmd.Process.Kill()
		_ = q.cmd.Wait()
	})
	q.says("open")
	return q
}

func (q *inQueue) says(want string) {
	q.t.Helper()
	said := make(chan string, 1)
	go func() {
		line, err := q.said.ReadString('\n')
		if err != nil {
			line = err.Error()
		}
		said <- strings.TrimSpace(line)
	}()
	select {
	case got := <-said:
		must.Equal(q.t, got, want, "the process says")
	case <-time.After(patience):
		q.t.Fatalf("the process says nothing, want %q", want)
	}
}

func (q *inQueue) signal(s syscall.Signal) {
	q.t.Helper()
	must.Do(q.t, q.cmd.Process.Signal(s))
}

// stop stops the process, and returns once each of its threads has stopped: one that
// waits for the lock has left the queue by then.
func (q *inQueue) stop() {
	q.t.Helper()
	q.signal(syscall.SIGSTOP)
	var status unix.WaitStatus
	for !status.Stopped() {
		if _, err := unix.Wait4(q.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil && !errors.Is(err, unix.EINTR) {
			q.t.Fatal(err)
		}
	}
}

// waits returns once a process waits for a file's lock.
func waits(t *testing.T, path string) {
	t.Helper()
	next := must.Get(os.Open(path + ".next"))(t)
	defer func() { _ = next.Close() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for unix.Flock(int(next.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Flock(int(next.Fd()), unix.LOCK_UN)
		<-look.C
	}
}

// A process that is stopped while it waits keeps nobody out, and has its turn once
// it goes on.
func TestStoppedWaiter(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	release := hold(t, b.path+".lock")
	stopped := startInQueue(t, b.path)
	waits(t, b.path)
	stopped.stop()
	done := make(chan error, 1)
	sqlitestore.EndSlice(b.store)
	go func() {
		_, err := b.store.Decide(context.Background(), driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: []driver.Item{item("b", 1)}})
		done <- err
	}()
	release()
	if err := <-done; err != nil { // after its timeout
		t.Fatalf("beside a stopped process that waits: %v", err)
	}
	b.granted(item("c", 1))
	stopped.signal(syscall.SIGCONT)
	stopped.says("taken")
}

// The refusal names a stopped process that has the lock.
func TestHolderIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	holder := startInQueue(t, b.path)
	holder.says("taken")
	sqlitestore.SetTimeout(b.store, 50*time.Millisecond)
	refused := func(before string) {
		t.Helper()
		sqlitestore.EndSlice(b.store)
		_, err := b.try(name, item("b", 1))
		want := fmt.Sprintf("waited in vain for %s.lock, which %sprocess %d (", b.path, before, holder.cmd.Process.Pid)
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotCharged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("")
	want := fmt.Sprintf("%d %s", holder.cmd.Process.Pid, filepath.Base(os.Args[0]))
	if text, err := os.ReadFile(b.path + ".lock"); err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("the lock's file has %q, %v, want %q", text, err, want)
	}
	if runtime.GOOS == "linux" {
		holder.stop()
		refused("the stopped ")
		must.Do(t, os.WriteFile(b.path+".lock", []byte("1 init\n"), 0o600))
		refused("the stopped ") // also where it could not sign before
		holder.signal(syscall.SIGCONT)
	}
	sqlitestore.SetTimeout(b.store, patience)
	sqlitestore.EndSlice(b.store)
	bounded := must.Get(budget.New(b.store, budget.Spec{
		Name: name, Timeout: 50 * time.Millisecond, Costs: map[string]budget.Cost{"op": {Units: 1}}, Limits: b.limits,
	}))(t)
	_, err := bounded.Charge(t.Context(), budget.Call{Operation: "op"})
	told := &budget.RefusedError{}
	if !errors.As(err, &told) || !told.NotCharged || !strings.Contains(err.Error(), fmt.Sprintf("process %d", holder.cmd.Process.Pid)) {
		t.Errorf("within the budget's own timeout: %v, want it not charged, and the process", err)
	}
	must.Do(t, errors.Join(holder.end(), holder.cmd.Wait()))
	for says, want := range map[string]string{
		"":        "",
		"1 init ": "which process 1 (init) had last: is it stopped?",
		fmt.Sprintf("%d ended ", holder.cmd.Process.Pid): "",
	} {
		// This process may have the lock for a moment, for it had waited for it, and sign
		// the file once more. So the file is written for each look.
		tick, limit := time.NewTicker(time.Millisecond), time.After(patience)
		for got := "none"; got != want; {
			select {
			case <-tick.C:
				must.Do(t, os.WriteFile(b.path+".lock", []byte(says), 0o600))
				got = sqlitestore.Holder(b.store)
			case <-limit:
				t.Fatalf("nobody has the lock, and its file has %q: %q, want %q", says, got, want)
			}
		}
		tick.Stop()
	}
}

// A call that gives up leaves its place to the process's next, and what nobody
// waits for any more is dropped.
func TestAbandonedPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	release := hold(t, b.path+".lock")
	for range 20 {
		sqlitestore.EndSlice(b.store)
		sqlitestore.SetTimeout(b.store, 2*time.Millisecond)
		must.Is(t, check.Err(b.try(name, item("b", 1))), driver.ErrUnavailable)
	}
	release()
	q := startInQueue(t, b.path)
	q.says("taken")
	must.Do(t, q.end())
	sqlitestore.SetTimeout(b.store, patience)
	b.granted(item("b", 1))
}

// A process that was stopped while it looked whether others wait keeps nobody out.
func TestStoppedLooker(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	release := hold(t, b.path+".next")
	defer release()
	sqlitestore.EndSlice(b.store)
	b.granted(item("b", 1))
}
