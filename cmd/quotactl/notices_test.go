package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/must"
)

// manager is a service manager that listens for what a daemon tells it.
type manager struct {
	t      *testing.T
	socket *net.UnixConn
	path   string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // a socket's path is short
	must.Do(t, err)
	m := &manager{t: t, path: filepath.Join(dir, "socket")}
	if m.socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check.NoError(t, errors.Join(m.socket.Close(), os.RemoveAll(dir))) })
	return m
}

// hears waits for a notice with a line that matches and returns it; it drops others before
// it, and fails at those that must not come.
func (m *manager) hears(pattern string, never ...string) string {
	m.t.Helper()
	expression := regexp.MustCompile("(?m)^" + pattern + "$")
	must.Do(m.t, m.socket.SetReadDeadline(time.Now().Add(patience)))
	buffer := make([]byte, 4096)
	for {
		n, err := m.socket.Read(buffer)
		if err != nil {
			m.t.Fatalf("no notice matched %s: %v", pattern, err)
		}
		text := string(buffer[:n])
		if expression.MatchString(text) {
			return text
		}
		for _, line := range never {
			if strings.Contains(text, line) {
				m.t.Fatalf("%q came before %s", text, pattern)
			}
		}
	}
}

// The daemon tells its manager when it is ready, that it lives, reloads and stops:
// the last at once, while a page is under way.
func TestTheManagerIsToldHowTheDaemonIs(t *testing.T) {
	upstream, address := newGate(t)
	m := newManager(t)
	p := newProgram(t, address, "run", "--now")
	p.Env = append(p.Env, "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=200000")
	p.start()
	ready := m.hears("READY=1", "WATCHDOG", "STOPPING")
	if !regexp.MustCompile(`\nSTATUS=1 job; next tick 20[0-9]+-01-01T00:00:00Z, of trending$`).MatchString(ready) {
		t.Errorf("the status is %q", ready)
	}
	m.hears("WATCHDOG=1")
	m.hears("WATCHDOG=1")
	<-upstream.asked
	<-upstream.asked

	before := sdnotify.SdNotifyMonotonicUsec()
	p.signal(syscall.SIGHUP)
	reloading := m.hears("RELOADING=1", "READY=1")
	at := regexp.MustCompile(`\nMONOTONIC_USEC=[0-9]+$`).FindString(reloading)
	micros := func(assignment string) int64 {
		_, number, _ := strings.Cut(strings.TrimSpace(assignment), "=")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", assignment, err)
		}
		return n
	}
	if now := sdnotify.SdNotifyMonotonicUsec(); micros(at) < micros(before) || micros(at) > micros(now) {
		t.Errorf("the notice puts the reload at %q, want it between %q and %q", at, before, now)
	}
	m.hears("READY=1", "STOPPING")

	p.signal(syscall.SIGTERM)
	stopping := m.hears("STOPPING=1")
	// The job's own grace is an hour.
	if want := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\n", daemon.StopTakes(time.Hour, time.Minute).Microseconds()); !strings.Contains(stopping, want) {
		t.Errorf("%q does not ask for %s", stopping, want)
	}
	close(upstream.open)
	p.exits(exitDone)
}

// It is not ready while its store is away, but asks for time.
func TestTheManagerIsToldThatTheStoreIsAway(t *testing.T) {
	m := newManager(t)
	p := newProgram(t, "https://upstream.invalid", "run", "--store", "redis://127.0.0.1:1/0")
	p.Env = append(p.Env, "NOTIFY_SOCKET="+m.path)
	p.start()
	want := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=waiting for the store, which is out of reach", (3 * time.Minute).Microseconds())
	check.Equal(t, m.hears("STATUS=.*", "READY"), want, "its notice")
	p.signal(syscall.SIGTERM)
	m.hears("STOPPING=1", "READY")
	p.exits(exitDone)
}

// One pass is no service, and tells nothing.
func TestOnePassTellsNoManager(t *testing.T) {
	m := newManager(t)
	p := newProgram(t, "https://upstream.invalid", "run", "--once", "--sandbox")
	p.Env = append(p.Env, "NOTIFY_SOCKET="+m.path)
	p.start()
	p.exits(exitDone)
	must.Do(t, m.socket.SetReadDeadline(time.Now()))
	buffer := make([]byte, 4096)
	if n, err := m.socket.Read(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it told %q, %v", buffer[:n], err)
	}
}

// A daemon whose manager does not listen goes on, and says so once.
func TestAManagerThatDoesNotListen(t *testing.T) {
	p := newProgram(t, "https://upstream.invalid", "run")
	p.Env = append(p.Env, "NOTIFY_SOCKET="+filepath.Join(p.Dir, "none"), "WATCHDOG_USEC=20000")
	p.start()
	p.logged("the service manager could not be notified")
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
	if text, err := os.ReadFile(p.log); err != nil || strings.Count(string(text), "could not be notified") != 1 {
		t.Errorf("it is not said once: %v\n%s", err, text)
	}
}
