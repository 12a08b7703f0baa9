package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
	"golang.org/x/sys/unix"
)

// A daemon whose listening ends by itself stops as at a signal, and fails, so that systemd
// starts it anew: nobody could ask it any more.
func TestServeEndsEarly(t *testing.T) {
	t.Parallel()
	const job = `
[job.wait]
budget   = "shop/main"
schedule = "@yearly"
command  = ["sh", "-c", "echo begun; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
grace    = "1m"
`
	s := startServing(t, serveConfig+job, "run", "--listen", "0", "--now")
	s.answers(http.StatusOK, http.MethodGet, "/healthz", "")
	s.logged(`begun`)
	shutListener(t, s.Process.Pid)
	s.exits(exitFailed)
	s.logged(`level=ERROR msg="listening has failed: the daemon stops`)
	s.logged(`listening failed while the daemon was running: accept tcp .*; start it again`)
	s.logged(`msg="run ended" .*reason=drained`)
}

// The same goes for a Unix socket, though its accept reports nothing: for one that is
// shut down, that is removed, and whose place another has taken.
func TestServeUnixEndsEarly(t *testing.T) {
	t.Parallel()
	for said, end := range map[string]func(s *serving, path string) error{
		"was shut down": func(s *serving, _ string) error { shutListener(t, s.Process.Pid); return nil },
		"was removed":   func(_ *serving, path string) error { return os.Remove(path) },
		"another file has replaced the socket": func(_ *serving, path string) error {
			return errors.Join(os.WriteFile(path+".next", []byte("mine"), 0o600), os.Rename(path+".next", path))
		},
	} {
		path := filepath.Join(t.TempDir(), "q.sock")
		s := startServing(t, serveConfig, "run", "--listen", "unix:"+path)
		s.onUnix(path)
		s.answers(http.StatusOK, http.MethodGet, "/healthz", "")
		must.Do(t, end(s, path))
		s.exits(exitFailed)
		s.logged(`level=ERROR msg="listening has failed: the daemon stops`)
		s.logged(`listening failed while the daemon was running: .*` + said + `.*; start it again`)
		if text, err := os.ReadFile(path); strings.HasPrefix(said, "another") && string(text) != "mine" {
			t.Errorf("the other file is %q, %v", text, err)
		}
	}
}

// shutListener ends, from outside, the one socket that a process listens on.
func shutListener(t *testing.T, pid int) {
	t.Helper()
	process := must.Get(unix.PidfdOpen(pid, 0))(t)
	defer func() { _ = unix.Close(process) }()
	open := must.Get(filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*")))(t)
	for _, file := range open {
		if to, err := os.Readlink(file); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		number := must.Get(strconv.Atoi(filepath.Base(file)))(t)
		socket, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			t.Fatalf("%v: to end the socket of a process that it has started itself, a test needs the right to trace it", err)
		}
		listens, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err == nil && listens != 0 {
			err = unix.Shutdown(socket, unix.SHUT_RDWR)
			_ = unix.Close(socket)
			must.Do(t, err)
			return
		}
		_ = unix.Close(socket)
	}
	t.Fatal("it listens on no socket")
}
