package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

// world is a gateway between programs, which the test plays, and upstreams of its own.
type world struct {
	*upstreamtest.Internet
	t     testing.TB
	g     *Gateway
	store open.Backend
	cfg   *config.Config
}

const worldConfig = `
[upstream.youtube]
base_url = "https://www.googleapis.com/youtube/v3"
final = { body = '{"error":{"code":{status},"message":"{message}"}}' }
[upstream.youtube.costs]
"search.list" = { units = 100, match = "GET www.googleapis.com/youtube/v3/search" }
"videos.list" = { units = 1, match = "/youtube/v3/videos" }
[upstream.youtube.limit.day]
quota = 10_000
window = "24h"
[upstream.youtube.credential.key1]
[upstream.any]
hosts = ["api.example.com", "api.example.com:8443", "*.myshopify.com"]
unknown_operation = 1
[upstream.any.limit.day]
quota = 1_000_000
window = "24h"
[upstream.any.credential.main]
[upstream.closed]
hosts = ["pinned.example.com"]
tunnel = true
unknown_operation = 1
[upstream.closed.limit.day]
quota = 10
window = "24h"
[upstream.closed.credential.main]
`

// newWorld starts a gateway over a configuration; handler is what all upstreams do.
func newWorld(t testing.TB, toml string, handler http.HandlerFunc, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t}
	dir := t.TempDir()
	w.Internet = upstreamtest.Start(t, handler, "www.googleapis.com", "api.example.com", "pinned.example.com", "other.example.com", "*.myshopify.com", "api.two.example.com")
	file := filepath.Join(dir, "costs.toml")
	toml = strings.ReplaceAll(toml, `"/youtube`, `"www.googleapis.com/youtube`)
	must.Do(t, os.WriteFile(file, []byte(toml), 0o600))
	w.cfg = must.Get(config.Load(file))(t)
	w.store = must.Get(open.Host(t.Context(), w.cfg, w.cfg.Store.URL, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { must.Do(t, w.store.Close()) })
	o := Options{
		Config: w.cfg, Temp: dir, Log: slog.New(slog.DiscardHandler), Secret: func(config.Credential) string { return "" },
		Call: budgethttp.Options{Log: slog.New(slog.DiscardHandler)},
		Open: w.open, Say: func(string) {},
		Env: []string{"SSL_CERT_FILE=" + w.Cert, "PATH=" + os.Getenv("PATH")},
	}
	for _, one := range change {
		one(&o)
	}
	w.g = must.Get(Start(t.Context(), o))(t)
	w.g.wire.proxy = func(*url.URL) (*url.URL, error) { return w.Proxy, nil } // as if this process's environment named it
	w.g.wire.usual.Proxy = http.ProxyURL(w.Proxy)
	t.Cleanup(func() { must.Do(t, w.g.Close()) })
	return w
}

func (w *world) open(name string) (*budget.Budget, error) {
	return open.BudgetOn(w.store, w.cfg, w.cfg.Store.URL, name)
}

// variable is a variable of the command's environment.
func (w *world) variable(name string) string {
	for _, one := range w.g.Env() {
		if value, found := strings.CutPrefix(one, name+"="); found {
			return value
		}
	}
	w.t.Fatalf("the command has no %s", name)
	return ""
}

// trust is by what the command trusts servers.
func (w *world) trust() *x509.CertPool {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must.Get(os.ReadFile(w.variable("SSL_CERT_FILE")))(w.t)) {
		w.t.Fatal("no certificate")
	}
	return pool
}

// client is a program that goes by its environment.
func (w *world) client(h2 bool) *http.Client {
	proxy := must.Get(url.Parse(w.variable("HTTPS_PROXY")))(w.t)
	t := &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: w.trust()}, ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// opened is a raw connection to a host through the gateway.
func (w *world) opened(connect, name string, protocols ...string) *tls.Conn {
	conn := w.tunnel(connect)
	secure := tls.Client(conn, &tls.Config{RootCAs: w.trust(), ServerName: name, NextProtos: protocols})
	must.Do(w.t, secure.Handshake())
	return secure
}

// tunnel is what a CONNECT gives.
func (w *world) tunnel(connect string) net.Conn {
	proxy := must.Get(url.Parse(w.variable("HTTPS_PROXY")))(w.t)
	conn := must.Get(net.Dial("tcp", proxy.Host))(w.t)
	w.t.Cleanup(func() { _ = conn.Close() })
	return must.Get(connectThrough(conn, proxy.User, connect))(w.t)
}

// charged is what a budget has used, once no charge is open.
func (w *world) charged(name string) (units int64) {
	w.t.Helper()
	b := must.Get(w.open(name))(w.t)
	defer func() { must.Do(w.t, b.Close()) }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		spent := must.Get(b.Spent(w.t.Context(), budget.ByOperation, 0))(w.t)
		if spent.Total.Open == 0 {
			return spent.Total.Units
		}
	}
	w.t.Fatal("a charge stays open")
	return 0
}

// get asks for an address, and returns the status and the body.
func get(t testing.TB, client *http.Client, address string) (*http.Response, string) {
	t.Helper()
	resp := must.Get(client.Get(address))(t)
	defer func() { _ = resp.Body.Close() }()
	return resp, string(must.Get(io.ReadAll(resp.Body))(t))
}

func hello(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	_, _ = fmt.Fprint(w, "hello")
}
