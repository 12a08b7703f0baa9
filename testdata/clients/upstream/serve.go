// Package upstream is the other end of the tests of clients: a server of the test's
// own that stands in for an API's hosts, counts what arrives by itself, and throws
// in faults; and the budget that a preset makes, beside what the server counted.
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

// Network is what lies between a client and the server.
type Network string

const (
	// HTTP1 and HTTP2 are TLS on 127.0.0.1.
	HTTP1 Network = "HTTP/1.1"
	HTTP2 Network = "HTTP/2"
	// Memory is pipes, for fake time.
	Memory Network = "pipes in fake time"
)

// Serve starts a server, and returns the way to it: each connection goes there,
// whatever host it is for, so that clients keep the addresses that they are made
// with. One dial in eight fails where faults are given. All ends with the test.
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

// servePipes is Serve on a network in memory. What goes over it is as private as
// TLS would have it.
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
