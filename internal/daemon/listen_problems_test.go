package daemon

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// problems are raw requests that cause a problem.
var problems = []struct {
	name, request string
	status        int
	reason        string
	allow         string
}{
	{"an unknown path", "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no_path", ""},
	{"an unknown path of decisions", "POST /v1/charges HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 404, "no_path", ""},
	{"a path that is not clean", "GET //healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no_path", ""},
	{"the root", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no_path", ""},
	{"no path at all", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no_path", ""},
	{"a method of metrics", "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405, "method", "GET, HEAD"},
	{"a method of health", "DELETE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method", "GET, HEAD"},
	{"a method of readiness", "OPTIONS /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method", "GET, HEAD"},
	{"a method of charges", "GET /v1/charge HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method", "POST"},
	{"a method that there is not", "BREW /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method", "GET, HEAD"},
	{"no Content-Type", "POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415, "media_type", ""},
	{"health for a page", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403, "not_local", ""},
	{"health for a page's program", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: https://example.com\r\n\r\n", 403, "not_local", ""},
	{"metrics for a page", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403, "not_local", ""},
	{"readiness for a page", "GET /readyz HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site\r\n\r\n", 403, "not_local", ""},
	{"another protocol", "EHLO example.com\r\n\r\n", 400, "malformed", ""},
	{"no Host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed", ""},
	{"another version", "GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n", 400, "malformed", ""},
	{"an unknown encoding", "POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: zip\r\n\r\n", 400, "malformed", ""},
	{"an unknown Expect", "POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nExpect: 42\r\nContent-Length: 2\r\n\r\n{}", 400, "malformed", ""},
	{"a header that is too large", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", maxHeader) + "\r\n\r\n", 431, "header_size", ""},
}

// Every answer other than 200 is a problem, whoever gives it.
func TestEveryProblem(t *testing.T) {
	w := watch(t, nil)
	under := must.Get(w.l.serve(t.Context(), &Endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, slog.New(slog.DiscardHandler)))(t)
	for _, c := range problems {
		t.Run(c.name, func(t *testing.T) {
			got := exchange(t, strings.TrimPrefix(under.called, "http://"), c.request)
			isProblem(t, got, c.status, c.reason)
			check.Equal(t, got.header.Get("Allow"), c.allow, "it allows")
		})
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/status"} {
		got := exchange(t, strings.TrimPrefix(under.called, "http://"), "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		check.Equal(t, got.status, http.StatusOK, path)
		check.Equal(t, got.header.Get("X-Content-Type-Options"), "nosniff", path)
	}
	w.has(`quotactl_http_requests_total{route="/metrics",status="405"} 1`, `quotactl_http_requests_total{route="/v1/charge",status="415"} 1`,
		`quotactl_http_requests_total{route="other",status="400"} 5`, `quotactl_http_requests_total{route="other",status="404"} 5`)
	check.NoError(t, under.stop())
}

// reply is a parsed answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// exchange sends a text, and reads the answer.
func exchange(t *testing.T, address, text string) reply {
	t.Helper()
	var dialer net.Dialer
	conn := must.Get(dialer.DialContext(t.Context(), "tcp", address))(t)
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, text) // what is too large is not read to its end
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Do(t, err)
	defer func() { _ = resp.Body.Close() }()
	body := must.Get(io.ReadAll(resp.Body))(t)
	return reply{resp.StatusCode, resp.Header, body}
}

// isProblem checks what every problem must have.
func isProblem(t *testing.T, got reply, status int, reason string) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Reason string
		Status                      int
	}
	if err := json.Unmarshal(got.body, &p); err != nil {
		t.Fatalf("%s: %v", got.body, err)
	}
	if got.status != status || p.Status != status || p.Reason != reason || p.Title == "" || p.Detail == "" || !strings.HasSuffix(p.Type, "#"+reason) {
		t.Errorf("%d %s, want %d %s", got.status, got.body, status, reason)
	}
	if media, sniff := got.header.Get("Content-Type"), got.header.Get("X-Content-Type-Options"); media != "application/problem+json" || sniff != "nosniff" {
		t.Errorf("Content-Type: %s, X-Content-Type-Options: %s", media, sniff)
	}
}
