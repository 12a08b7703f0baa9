// Package upstream is the server side of the tests of clients. The server replaces an
// API's hosts, counts requests by itself, and injects faults. The package also makes a
// preset's budget, to compare with what the server counted.
package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/pipetest"
)

// Network is the connection between a client and the server.
type Network string

const (
	// HTTP1 and HTTP2 are TLS on 127.0.0.1.
	HTTP1 Network = "HTTP/1.1"
	HTTP2 Network = "HTTP/2"
	// Memory is pipes in memory, for fake time.
	Memory Network = "pipes in fake time"
)

// Serve starts a server and returns a transport to it: every connection goes to the
// server, whatever host it is for, so that clients keep their addresses. With faults, one
// dial in eight fails. Everything ends with the test.
func Serve(t testing.TB, network Network, handler http.Handler, faults *Faults) *http.Transport {
	t.Helper()
	if network == Memory {
		return servePipes(t, handler, faults)
	}
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = network == HTTP2
	server.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	var dialer net.Dialer
	base := &http.Transport{
		ForceAttemptHTTP2: network == HTTP2,
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "example.com"}, // a name of httptest's certificate
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if faults.OneIn(8) {
				return nil, refused()
			}
			return dialer.DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base
}

// servePipes is Serve on a network in memory, which is as private as TLS.
func servePipes(t testing.TB, handler http.Handler, faults *Faults) *http.Transport {
	dial := pipetest.Serve(t, handler)
	base := &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if faults.OneIn(8) {
			return nil, refused()
		}
		return dial(ctx, network, address)
	}}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}
