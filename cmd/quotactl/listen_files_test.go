package main

import (
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// A daemon that may open few files holds no more connections than leave it some, and
// decides.
func TestServeWithFewFiles(t *testing.T) {
	t.Parallel()
	s := newServing(t, serveConfig, "run", "--listen", "0")
	shell := must.Get(exec.LookPath("sh"))(t)
	s.Args = append([]string{"sh", "-c", `ulimit -n 100; exec "$@"`, "sh"}, s.Args...)
	s.Path = shell
	s.start()
	s.logged(`msg="listening`)
	for range 150 {
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.address(), "http://")))(t)
		defer func() { _ = conn.Close() }()
	}
	evicted := regexp.MustCompile(`(?m)^quotactl_http_evicted_connections_total [1-9]\d*$`)
	s.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeMain)
	s.answers(http.StatusOK, http.MethodGet, "/readyz", "")
	if metrics := s.answers(http.StatusOK, http.MethodGet, "/metrics", ""); !evicted.MatchString(metrics) {
		t.Errorf("with 100 files all of 150 connections stay:\n%s", grep(metrics, "quotactl_http"))
	}
	s.signal(syscall.SIGTERM)
	s.exits(exitDone)
}
