package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// pipes is a listener whose connections are pipes.
type pipes struct {
	calls chan net.Conn
	over  chan struct{}
}

func newPipes(calls int) *pipes {
	return &pipes{calls: make(chan net.Conn, calls), over: make(chan struct{})}
}

// call makes the listener accept a pipe, and returns the other end.
func (p *pipes) call() net.Conn {
	there, here := net.Pipe()
	p.calls <- here
	return there
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

// A connection too many closes the one that was idle for longest, and no other.
// Connections with a decision under way stay, and each counts once.
func TestBoundConnections(t *testing.T) {
	below := newPipes(10)
	l := boundConnections(below, 3, newHTTPMetrics())
	var conns []*boundConn
	accept := func(open int, ended ...int) {
		t.Helper()
		below.call()
		conn := must.Get(l.Accept())(t)
		conns = append(conns, conn.(*boundConn))
		for i, c := range conns {
			want := false
			for _, e := range ended {
				want = want || e == i
			}
			check.Equal(t, c.ended, want, "with", len(conns), "accepted, connection", i, "has ended")
		}
		check.Equal(t, l.open, open, "open")
	}
	accept(1)
	accept(2)
	accept(3)
	conns[0].decide(1)
	accept(3, 1)
	conns[0].decide(1) // of HTTP/2
	conns[0].decide(-1)
	conns[2].decide(0) // a request has come: 3 is idle for longer
	accept(3, 1, 3)
	conns[0].decide(-1)
	accept(3, 1, 3, 2)
	accept(3, 1, 3, 2, 4)
	accept(3, 1, 3, 2, 4, 0)
	if conns[4].decide(1) {
		t.Error("a decision begins on a connection that has ended")
	}
	check.NoError(t, errors.Join(conns[5].Close(), conns[5].Close(), conns[4].Close()))
	accept(3, 1, 3, 2, 4, 0, 5)
	check.NoError(t, l.Close())
	check.Is(t, check.Err(l.Accept()), net.ErrClosed, "accepting ended with")
}

const heldBound = 8

// held has the kinds of connections that others may hold open.
var held = map[string]func(t *testing.T, conn net.Conn){
	"nothing sent":  func(*testing.T, net.Conn) {},
	"half a header": func(t *testing.T, conn net.Conn) { write(t, conn, "POST /v1/charge HTTP/1.1\r\nHost: local") },
	"half a body": func(t *testing.T, conn net.Conn) {
		write(t, conn, "POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	},
	"half a body for a path that there is not": func(t *testing.T, conn net.Conn) {
		write(t, conn, "POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	},
	"kept alive": func(t *testing.T, conn net.Conn) {
		check.Equal(t, ask(t, conn, "/healthz"), http.StatusOK, "healthz")
	},
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	must.Get(io.WriteString(conn, text))(t)
}

// ask returns the status of a page.
func ask(t *testing.T, conn net.Conn, path string) int {
	t.Helper()
	write(t, conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return status(t, conn)
}

// status is the status of the answer on a connection; 0 if the connection has ended.
func status(t *testing.T, conn net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, resp.Body)
	check.NoError(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode
}

// Whatever connections others hold open, health is answered at once, and waiting charges
// keep their connections.
func TestHeldConnections(t *testing.T) {
	for kind, hold := range held {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newPipes(0)
				w := watch(t, nil)
				w.l.connections = heldBound
				under := w.l.serveOn(below, "pipes", nil, slog.New(slog.DiscardHandler))
				must.Get(w.b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: 30 * time.Second}, ByHand: true}))(t)
				var waiting []net.Conn
				for range heldBound / 2 {
					conn := below.call()
					const body = `{"budget":"shop/main","operation":"get","wait_seconds":60}`
					write(t, conn, fmt.Sprintf("POST /v1/charge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
					waiting = append(waiting, conn)
				}
				start := time.Now()
				for range 3 * heldBound {
					hold(t, below.call())
					synctest.Wait()
				}
				for range 10 {
					for _, path := range []string{"/healthz", "/readyz"} {
						check.Equal(t, ask(t, below.call(), path), http.StatusOK, path)
					}
				}
				check.Equal(t, time.Since(start), 0, "it took")
				w.has(fmt.Sprintf("quotactl_http_open_connections %d", heldBound))
				stopped := make(chan error)
				go func() { stopped <- under.stop() }()
				for _, conn := range waiting {
					check.Equal(t, status(t, conn), http.StatusTooManyRequests, "a charge that waited is answered")
				}
				check.NoError(t, <-stopped)
			})
		})
	}
}

// The same with sockets: a connection too many is answered, and the one that was idle for
// longest is closed.
func TestServeBounded(t *testing.T) {
	w := watch(t, nil)
	w.l.connections = 2
	under := must.Get(w.l.serve(t.Context(), &Endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, slog.New(slog.DiscardHandler)))(t)
	var conns []net.Conn
	for range 3 {
		var dialer net.Dialer
		conn := must.Get(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(under.called, "http://")))(t)
		conns = append(conns, conn)
		must.Equal(t, ask(t, conn, "/healthz"), http.StatusOK, "healthz")
	}
	if n, err := conns[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the first connection: %d bytes, %v", n, err)
	}
	check.Equal(t, ask(t, conns[1], "/healthz"), http.StatusOK, "the second connection")
	w.has("quotactl_http_evicted_connections_total 1", `quotactl_http_requests_total{route="/healthz",status="200"} 4`)
	for _, conn := range conns {
		_ = conn.Close()
	}
	check.NoError(t, under.stop())
}
