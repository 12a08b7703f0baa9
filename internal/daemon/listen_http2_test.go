package daemon

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A charge that waits keeps its connection under HTTP/2 too.
func TestHeldConnectionsHTTP2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certtest.SelfSigned(t, dir)
	secure := must.Get((&Listen{Cert: cert, Key: key}).tls("tcp"))(t)
	w := watch(t, nil, limit.Limit{Name: "at-once", Limit: 1, Counts: limit.CountCalls, Window: limit.Window{Kind: limit.Concurrent}})
	w.l.connections = 2
	under := must.Get(w.l.serve(t.Context(), &Endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true, secure: secure}, slog.New(slog.DiscardHandler)))(t)
	must.Get(w.b.Reserve(t.Context(), budget.Call{Operation: "get"}, time.Hour))(t)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test's own certificate
	defer transport.CloseIdleConnections()
	answered := make(chan string, 1)
	go func() {
		body := strings.NewReader(`{"budget":"shop/main","operation":"get","lease_seconds":60,"wait_seconds":60}`)
		resp, err := (&http.Client{Transport: transport}).Post(under.called+"/v1/charge", "application/json", body)
		if err != nil {
			answered <- err.Error()
			return
		}
		_ = resp.Body.Close()
		answered <- resp.Proto + " " + resp.Status
	}()
	for waits := false; !waits; { // it was refused once, and waits
		_, text := w.get("/metrics")
		waits = strings.Contains(text, `result="exhausted"`)
	}
	for range 8 {
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(under.called, "https://")))(t)
		defer func() { _ = conn.Close() }()
	}
	probe := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: transport.TLSClientConfig.Clone()}
	defer probe.CloseIdleConnections()
	resp, err := (&http.Client{Transport: probe}).Get(under.called + "/healthz")
	must.Do(t, err)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("healthz: %s, %v", resp.Status, err)
	}
	check.NoError(t, under.stop())
	check.Equal(t, <-answered, "HTTP/2.0 429 Too Many Requests", "the charge that waited is answered")
}
