package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

const serveConfig = `
[store]
url = "sqlite:quotactl.db"
timeout = "1m"
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.minute]
limit  = 3
window = "1m"
[upstream.shop.credential.main]
[upstream.shop.credential."*"]
`

// serving is a daemon without jobs.
type serving struct {
	*program
	client *http.Client
}

// startServing starts the daemon and waits until it listens.
func startServing(t *testing.T, config string, args ...string) *serving {
	t.Helper()
	s := newServing(t, config, args...)
	s.start()
	s.logged(`msg="listening`)
	return s
}

func newServing(t *testing.T, config string, args ...string) *serving {
	t.Helper()
	effort.Processes(t)
	s := &serving{&program{t: t, Cmd: exec.CommandContext(t.Context(), "quotactl", args...)}, &http.Client{Timeout: patience}}
	s.Dir = t.TempDir()
	s.Env = append(os.Environ(), "TOKEN="+listenToken)
	s.log = filepath.Join(s.Dir, "stderr")
	err := os.WriteFile(filepath.Join(s.Dir, "costs.toml"), []byte(config), 0o600)
	if err == nil {
		s.file, err = os.Create(s.log)
	}
	must.Do(t, err)
	s.Stderr, s.Stdout = s.file, &s.out
	return s
}

const listenToken = "a-token-that-nobody-guesses"

var listensOn = regexp.MustCompile(`msg="listening.* address=(\S+)`)

// address is what the daemon says that it listens on.
func (s *serving) address() string {
	s.t.Helper()
	text, err := os.ReadFile(s.log)
	found := listensOn.FindSubmatch(text)
	if err != nil || found == nil {
		s.t.Fatalf("it does not say where it listens (%v):\n%s", err, text)
	}
	return string(found[1])
}

// onUnix has the client call a Unix socket.
func (s *serving) onUnix(path string) {
	s.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", path)
	}}
}

// call asks the daemon, with the token where it was given one.
func (s *serving) call(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	address := s.address()
	if strings.HasPrefix(address, "unix:") {
		address = "http://localhost"
	}
	request := must.Get(http.NewRequestWithContext(s.t.Context(), method, address+path, strings.NewReader(body)))(s.t)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(request)
	must.Do(s.t, err)
	defer func() { _ = response.Body.Close() }()
	text := must.Get(io.ReadAll(response.Body))(s.t)
	return response.StatusCode, string(text)
}

func (s *serving) answers(status int, method, path, body string, header ...string) string {
	s.t.Helper()
	got, text := s.call(method, path, body, header...)
	check.Equal(s.t, got, status, method, path, "…", text)
	return text
}

const chargeMain = `{"budget":"shop/main","operation":"get"}`

// Without jobs the daemon serves decisions alone; they are counted like all
// others, under one name for all budgets of a credential "*".
func TestServeAlone(t *testing.T) {
	s := startServing(t, serveConfig, "run", "--listen", "0")
	for _, c := range []struct {
		status int
		budget string
	}{{200, "shop/main"}, {200, "shop/anna"}, {200, "shop/anna"}, {200, "shop/bert"}, {200, "shop/anna"}, {429, "shop/anna"}} {
		s.answers(c.status, http.MethodPost, "/v1/charge", `{"budget":"`+c.budget+`","operation":"get"}`)
	}
	for _, path := range []string{"/v1/status", "/metrics", "/readyz"} { // what a web page could ask
		s.answers(403, http.MethodGet, path, "", "Origin", "https://example.com")
	}
	metrics := s.answers(200, http.MethodGet, "/metrics", "")
	for _, line := range []string{
		`quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="store"} 1`,
		`quotactl_decisions_total{budget="shop/*",operation="get",result="granted",source="store"} 4`,
		`quotactl_decisions_total{budget="shop/*",operation="get",result="exhausted",source="store"} 1`,
		`quotactl_limit_used_units{budget="shop/main",limit="minute"} 1`,
		`quotactl_http_requests_total{route="/v1/charge",status="200"} 5`,
		`quotactl_http_requests_total{route="/v1/charge",status="429"} 1`,
		`quotactl_http_requests_total{route="/metrics",status="403"} 1`,
		`quotactl_http_open_connections 1`,
		`quotactl_http_evicted_connections_total 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no line %s among\n%s", line, grep(metrics, "quotactl_"))
		}
	}
	s.logged(`level=INFO msg=refused budget=shop/anna operation=get id=\S+ job="" region="" run="" reason=exhausted units=1 limit=minute remaining=0 retry_at=\d`)
	for line := range strings.Lines(grep(metrics, "anna")) {
		if !strings.HasPrefix(line, "quotactl_top_left_ratio{") { // which is of a bounded number
			t.Errorf("a visitor is a label: %s", line)
		}
	}
	s.answers(200, http.MethodGet, "/healthz", "")
	s.answers(200, http.MethodGet, "/readyz", "")
	s.signal(syscall.SIGTERM)
	s.exits(exitDone)
}

// Elsewhere than on this machine it wants the token, and TLS that is not old.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certtest.SelfSigned(t, dir)
	s := startServing(t, serveConfig, "run", "--listen", "0.0.0.0:0", "--listen-token-env", "TOKEN", "--listen-cert", cert, "--listen-key", key)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.address(), "https://"))
	must.Do(t, err)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	secure := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
	s.client.Transport = &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port)
	}}
	s.answers(401, http.MethodPost, "/v1/charge", chargeMain)
	s.answers(401, http.MethodPost, "/v1/charge", chargeMain, "Authorization", "Bearer "+listenToken[1:])
	s.answers(200, http.MethodPost, "/v1/charge", chargeMain, "Authorization", "Bearer "+listenToken)
	for _, path := range []string{"/metrics", "/readyz"} {
		s.answers(401, http.MethodGet, path, "")
		s.answers(200, http.MethodGet, path, "", "Authorization", "Bearer "+listenToken)
	}
	s.answers(200, http.MethodGet, "/healthz", "")
	if plain, err := http.Get("http://127.0.0.1:" + port + "/healthz"); err != nil { // without TLS
		t.Error(err)
	} else if body, _ := io.ReadAll(plain.Body); plain.Body.Close() != nil || plain.StatusCode != 400 || !strings.Contains(string(body), `"malformed"`) {
		t.Errorf("without TLS: %d %s", plain.StatusCode, body)
	}
	old := secure.Clone()
	old.MaxVersion = tls.VersionTLS11
	if conn, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	s.signal(syscall.SIGTERM)
	s.exits(exitDone)
	log, err := os.ReadFile(s.log)
	if err != nil || strings.Contains(string(log), listenToken) {
		t.Errorf("the token is in the log (%v):\n%s", err, log)
	}
}

// The socket is this user's alone, replaces one that nobody answers on, and is
// gone at the end.
func TestServeUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.sock")
	first := startServing(t, serveConfig, "run", "--listen", "unix:"+path)
	first.onUnix(path)
	first.answers(200, http.MethodPost, "/v1/charge", chargeMain)
	info := must.Get(os.Lstat(path))(t)
	check.Equal(t, info.Mode(), os.ModeSocket|0o600)
	second := newServing(t, serveConfig, "run", "--listen", "unix:"+path)
	second.start()
	second.exits(exitFailed)
	second.logged(`another process already listens there`)
	first.answers(200, http.MethodPost, "/v1/charge", chargeMain)

	first.signal(syscall.SIGKILL) // what it leaves behind is stale
	_ = first.Wait()
	third := startServing(t, serveConfig, "run", "--listen", "unix:"+path)
	third.onUnix(path)
	third.answers(200, http.MethodPost, "/v1/charge", chargeMain)
	third.signal(syscall.SIGTERM)
	third.exits(exitDone)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}

	must.Do(t, os.WriteFile(path, []byte("mine"), 0o600))
	fourth := newServing(t, serveConfig, "run", "--listen", "unix:"+path)
	fourth.start()
	fourth.exits(exitUsage)
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file is %q, %v", text, err)
	}
	left := must.Get(os.ReadDir(filepath.Dir(path)))(t)
	check.Equal(t, len(left), 1, "left behind")
}

// SIGTERM lets a request under way finish, and ends a wait with its refusal.
func TestServeDrains(t *testing.T) {
	s := startServing(t, serveConfig, "run", "--listen", "0")
	for range 3 {
		s.answers(200, http.MethodPost, "/v1/charge", `{"budget":"shop/waits","operation":"get"}`)
	}
	open := func(body string, sent int) (net.Conn, *bufio.Reader) {
		t.Helper()
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.address(), "http://")))(t)
		must.Get(fmt.Fprintf(conn, "POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body)))(t)
		reader := bufio.NewReader(conn)
		for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} { // the handler reads the body
			must.Equal(t, must.Get(reader.ReadString('\n'))(t), want)
		}
		must.Get(io.WriteString(conn, body[:sent]))(t)
		return conn, reader
	}
	wait := `{"budget":"shop/waits","operation":"get","wait_seconds":60}`
	waiting, waits := open(wait, len(wait))
	half, finishes := open(chargeMain, 10)
	defer func() { _, _ = waiting.Close(), half.Close() }()
	s.signal(syscall.SIGTERM)
	if line, err := waits.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 429 ") {
		t.Errorf("the wait ended with %q, %v", line, err)
	}
	must.Get(io.WriteString(half, chargeMain[10:]))(t)
	if line, err := finishes.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Errorf("the request under way ended with %q, %v", line, err)
	}
	s.exits(exitDone)
}

// The fullest budgets of a credential "*" are in the metrics, whichever process has charged them.
func TestServeMetricsOfTheFullest(t *testing.T) {
	t.Parallel()
	s := newServing(t, serveConfig, "run", "--listen", "127.0.0.1:0")
	charge := newServing(t, serveConfig, "charge", "shop/acme", "get")
	charge.Dir = s.Dir
	charge.start()
	charge.exits(0)
	s.start()
	s.logged(`msg="listening`)
	check.Contains(t, s.answers(http.StatusOK, "GET", "/metrics", ""), `quotactl_top_left_ratio{budget="shop/acme",limit="minute"} 0.6`)
	s.signal(syscall.SIGTERM)
	s.exits(0)
}
