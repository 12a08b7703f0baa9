package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a real redis-server of the test's own.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	conf string // a sentinel's configuration; empty for a server
	cmd  *exec.Cmd
	end  chan struct{} // closed when the process has ended
}

// startServer starts redis-server on a free port of the loopback, without
// persistence unless the arguments say otherwise, and stops it with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return startProcess(t, &server{t: t, dir: t.TempDir(), args: args})
}

// startSentinel starts a sentinel with a configuration file.
func startSentinel(t testing.TB, conf string) *server {
	t.Helper()
	return startProcess(t, &server{t: t, dir: t.TempDir(), conf: conf})
}

func startProcess(t testing.TB, s *server) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: apt-get install redis-server, or brew install redis; make test does it when it may")
	}
	t.Cleanup(s.kill)
	for try := 0; ; try++ { // a port that was free may be taken by the time
		s.addr = freeAddress(t)
		if s.start() {
			return s
		}
		if try == 3 {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("redis-server does not start: %s", log)
		}
	}
}

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// start starts the process, and waits until it answers. False when it ended.
func (s *server) start() bool {
	_, port, _ := net.SplitHostPort(s.addr)
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
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	s.end = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // how it ended does not matter
		close(ended)
	}(s.cmd)
	client := s.client()
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for {
		select {
		case <-ended:
			return false
		case <-limit:
			s.t.Fatal("redis-server does not answer")
		case <-tick.C:
		}
		if client.Ping(context.Background()).Err() == nil {
			return true
		}
	}
}

// kill stops the process by its own handle, with SIGKILL.
func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
	}
}

// ended waits until the process is gone.
func (s *server) ended() { <-s.end }

func (s *server) url(db int) string { return fmt.Sprintf("redis://%s/%d", s.addr, db) }

// client is a plain client for looking into the server.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
}
