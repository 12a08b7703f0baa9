package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener on which each call has an end of a pipe.
type pipes struct {
	calls chan net.Conn
	over  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.calls:
		return conn, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.over); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// No more connections are open than the bound; each that ends, once, makes room
// for one, and closing ends who waits for room.
func TestBoundConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, calls = 2, 5
		below := &pipes{calls: make(chan net.Conn, calls), over: make(chan struct{})}
		for range calls {
			here, _ := net.Pipe()
			below.calls <- here
		}
		l := boundConnections(below, most)
		accepted, ended := make(chan net.Conn, calls), make(chan error, 1)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- conn
			}
		}()
		for open := most; open < calls; open++ {
			synctest.Wait()
			if got := calls - len(below.calls); got != open {
				t.Fatalf("%d connections were accepted, want %d", got, open)
			}
			conn := <-accepted
			if err := errors.Join(conn.Close(), conn.Close()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting ended with %v", err)
		}
	})
}

// The daemon leaves who is one too many in the system's queue: it is answered
// when another goes.
func TestServeBounded(t *testing.T) {
	w := watch(t, nil)
	w.l.connections = 2
	a := &app{stderr: io.Discard, logLevel: "info", logFormat: "text"}
	called, stop, err := w.l.serve(t.Context(), &endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, a)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(called, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	answered := func(r *bufio.Reader) {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v", resp.StatusCode, err)
		}
	}
	first, fromFirst := ask()
	answered(fromFirst)
	second, fromSecond := ask()
	answered(fromSecond)
	third, fromThird := ask()
	if err := third.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := fromThird.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("one too many is answered while two are idle: %v", err)
	}
	if err := errors.Join(third.SetReadDeadline(time.Time{}), first.Close()); err != nil {
		t.Fatal(err)
	}
	answered(bufio.NewReader(third))
	if err := errors.Join(second.Close(), third.Close(), stop()); err != nil {
		t.Error(err)
	}
}
