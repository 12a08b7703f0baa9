// Package upstreamtest is a test kit: the internet in small. One server stands for the hosts of
// all upstreams, and a company's proxy leads to it, whatever host it is asked for. So a program
// needs nothing but its usual variables, HTTPS_PROXY and SSL_CERT_FILE, to reach it.
package upstreamtest

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/must"
)

// Internet is a server for some hosts, and the proxy that leads to it.
type Internet struct {
	*httptest.Server
	// Proxy is the address of the proxy, and Cert the file by which the server is trusted.
	Proxy *url.URL
	Cert  string

	mu      sync.Mutex // guards all below
	arrived *sync.Cond // of seen
	seen    []*http.Request
	dialled []string
}

// Start serves hosts, over HTTP/1.1 and HTTP/2, until the test ends.
func Start(t testing.TB, handler http.HandlerFunc, hosts ...string) *Internet {
	t.Helper()
	i := &Internet{}
	i.arrived = sync.NewCond(&i.mu)
	cert, key := certtest.SelfSigned(t, t.TempDir(), hosts...)
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		i.mu.Lock()
		i.seen = append(i.seen, req)
		i.mu.Unlock()
		i.arrived.Broadcast()
		handler(w, req)
	}))
	i.EnableHTTP2, i.Cert = true, cert
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	i.TLS = &tls.Config{Certificates: []tls.Certificate{must.Get(tls.LoadX509KeyPair(cert, key))(t)}}
	i.StartTLS()
	t.Cleanup(i.Close)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	i.Proxy = &url.URL{Scheme: "http", Host: l.Addr().String()}
	go i.accept(l)
	return i
}

func (i *Internet) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go i.connect(conn)
	}
}

// connect serves one CONNECT.
func (i *Internet) connect(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	from := bufio.NewReader(conn)
	req, err := http.ReadRequest(from)
	if err != nil {
		return
	}
	i.mu.Lock()
	i.dialled = append(i.dialled, req.RequestURI)
	i.mu.Unlock()
	server, err := net.Dial("tcp", i.Listener.Addr().String())
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, from)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, server)
}

// Requests are those that the server has seen.
func (i *Internet) Requests() []*http.Request {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.seen)
}

// Await waits until the server has seen n requests.
func (i *Internet) Await(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.seen) < n {
		i.arrived.Wait()
	}
}

// Dialled is what the proxy was asked to connect to.
func (i *Internet) Dialled() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.dialled)
}
