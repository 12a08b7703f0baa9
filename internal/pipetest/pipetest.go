// Package pipetest is a network in memory for tests of HTTP clients in fake time: with a
// real socket, fake time would not advance. [Serve] runs a server on it.
package pipetest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Dial connects to the server, whatever address it is given. It fits http.Transport's
// DialContext and DialTLSContext, since a pipe is as private as TLS.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Serve runs a server until the test ends and returns the function that connects to it.
// Close a client's idle connections in the test's own Cleanup.
func Serve(t testing.TB, handler http.Handler) Dial {
	t.Helper()
	l := Listen()
	server := &http.Server{Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return l.Dial
}

// Listener is a [net.Listener] whose connections are pipes. Use Listen.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen makes a network without a server.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Dial is a Dial.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
