package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a real redis-server of the test's own.
type redisServer struct {
	address, password string
}

// startRedis starts a server on a free port of this machine that notes every
// command it is sent, and stops it with the test.
func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: apt-get install redis-server, or brew install redis; make test does it when it may")
	}
	for try := 0; ; try++ { // a port that was free may be taken by the time
		s := &redisServer{address: freePort(t)}
		_, port, _ := net.SplitHostPort(s.address)
		dir := t.TempDir()
		base := []string{
			"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--logfile", filepath.Join(dir, "log"), "--daemonize", "no",
			"--save", "", "--appendonly", "no", "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000",
		}
		cmd := exec.CommandContext(t.Context(), "redis-server", append(base, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }() // how it ended does not matter
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		if s.answers(t, ended) {
			return s
		}
		if try == 3 {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("redis-server does not start: %s", log)
		}
	}
}

// answers waits until the server does; false when it has ended.
func (s *redisServer) answers(t *testing.T, ended <-chan struct{}) bool {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for {
		select {
		case <-ended:
			return false
		case <-limit:
			t.Fatal("redis-server does not answer")
		case <-tick.C:
		}
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
			return true
		}
	}
}

// client looks into the server.
func (s *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.address, Password: s.password, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
}

// lock makes the server ask for a password. It is not among its arguments,
// which every user of the machine may read.
func (s *redisServer) lock(ctx context.Context, password string) error {
	client := s.client()
	defer func() { _ = client.Close() }()
	if err := client.ConfigSet(ctx, "requirepass", password).Err(); err != nil {
		return err
	}
	s.password = password
	return client.Do(ctx, "SLOWLOG", "RESET").Err() // it notes this command with what it was given
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
