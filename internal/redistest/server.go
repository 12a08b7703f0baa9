// Package redistest starts real Redis servers for tests ([Start], [StartSentinel]) and
// puts proxies in front of them ([StartProxy]).
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Server is a real redis-server of the test's own.
type Server struct {
	t    testing.TB
	Addr string
	dir  string
	args []string
	conf string // a sentinel's configuration; empty for a server
	cmd  *exec.Cmd
	end  chan struct{} // closed when the process has ended
}

// Start starts redis-server on a free port of the loopback, without persistence unless
// the arguments enable it, and stops it with the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startProcess(t, &Server{t: t, dir: t.TempDir(), args: args})
}

// StartSentinel starts a sentinel with a configuration file.
func StartSentinel(t testing.TB, conf string) *Server {
	t.Helper()
	return startProcess(t, &Server{t: t, dir: t.TempDir(), conf: conf})
}

func startProcess(t testing.TB, s *Server) *Server {
	t.Helper()
	effort.Processes(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: apt-get install redis-server, or brew install redis; make test does it when it may")
	}
	for try := 0; ; try++ { // another program may take the port
		s.Addr = FreeAddress(t)
		t.Cleanup(s.Kill) // before the address is given back
		if s.Start() {
			return s
		}
		if try == 3 {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("redis-server does not start: %s", log)
		}
	}
}

// Start starts the process and waits until it answers; false if it ended, as when another
// server has its address.
func (s *Server) Start() bool {
	_, port, _ := net.SplitHostPort(s.Addr)
	base := []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"),
		"--daemonize", "no",
	}
	if s.conf != "" {
		base = append([]string{s.conf, "--sentinel"}, base...)
	} else {
		base = append(base, "--save", "", "--appendonly", "no")
	}
	s.cmd = exec.Command("redis-server", append(base, s.args...)...)
	must.Do(s.t, s.cmd.Start())
	ended := make(chan struct{})
	s.end = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // how it ended does not matter
		close(ended)
	}(s.cmd)
	client := s.newClient()
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		select {
		case <-ended:
			return false
		case <-limit:
			s.t.Fatal("redis-server does not answer")
		case <-tick.C:
		}
		if client.Ping(context.Background()).Err() == nil && s.isThis(client) {
			return true
		}
	}
}

// isThis reports whether the client is connected to this process, not to another program's at
// the same address.
func (s *Server) isThis(client *redis.Client) bool {
	info, err := client.InfoMap(context.Background(), "server").Result()
	return err == nil && info["Server"]["process_id"] == strconv.Itoa(s.PID())
}

// Kill sends SIGKILL to the process and waits until it has ended.
func (s *Server) Kill() {
	if s.end != nil {
		_ = s.cmd.Process.Kill()
		<-s.end
	}
}

// URL is the URL of a database of the server.
func (s *Server) URL(db int) string { return fmt.Sprintf("redis://%s/%d", s.Addr, db) }

// Client is a plain client to inspect the server. It is closed with the test.
func (s *Server) Client() *redis.Client {
	client := s.newClient()
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *Server) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
}

// Signal sends the process a signal, such as SIGSTOP or SIGCONT.
func (s *Server) Signal(signal os.Signal) {
	s.t.Helper()
	must.Do(s.t, s.cmd.Process.Signal(signal))
}

// SetArgs replaces the server's additional arguments; the next Start uses them.
func (s *Server) SetArgs(args ...string) { s.args = args }

// Dir is the folder of the server's files.
func (s *Server) Dir() string { return s.dir }

// patience is how long a server, or anything else, is waited for before a test fails.
const patience = 5 * time.Minute

// Await polls until so reports true, for at most five minutes.
func Await(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

// PID is the process's number.
func (s *Server) PID() int { return s.cmd.Process.Pid }
