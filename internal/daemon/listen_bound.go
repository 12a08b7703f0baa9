package daemon

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// mostConnections is how many connections the daemon holds open at once: more
// than requests may be under way, so that one too many is still told so.
const mostConnections = 2048

// openAtOnce is how many connections may be open: no more than half of the files
// that the process may have, which the store and the jobs need too.
func openAtOnce() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur/2 > mostConnections {
		return mostConnections
	}
	return int(files.Cur / 2)
}

// boundListener bounds the connections that are open at once and keeps nobody out:
// for one too many it ends the one that was idle for longest. All are idle but those
// with a decision under way: those that wait for another request, that have sent
// none, or a part of one.
type boundListener struct {
	net.Listener
	most    int
	metrics *httpMetrics

	mu   sync.Mutex // guards all below, and what each connection says
	open int
	idle list.List // of *boundConn, the one that was idle for longest in front
}

func boundConnections(l net.Listener, most int, m *httpMetrics) *boundListener {
	return &boundListener{Listener: l, most: most, metrics: m}
}

// Accept implements net.Listener.
func (l *boundListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundConn{Conn: conn, bound: l}
	if longest := l.admit(c); longest != nil {
		l.metrics.evicted.Inc()
		_ = longest.Close() // its end is what matters
	}
	return c, nil
}

// admit counts a connection. It returns the one that is to end for it.
func (l *boundListener) admit(c *boundConn) (longest *boundConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.metrics.connections.Inc()
	c.stand()
	if l.open <= l.most {
		return nil
	}
	longest = l.idle.Front().Value.(*boundConn)
	longest.leave()
	return longest
}

// boundConn is one of the connections.
type boundConn struct {
	net.Conn
	bound *boundListener

	// The listener's lock guards all below.
	place    *list.Element // among the idle; nil: it is not
	deciding int           // requests; HTTP/2 has several
	ended    bool
}

// stand moves an idle connection to the back of the idle list.
func (c *boundConn) stand() {
	if c.place != nil {
		c.bound.idle.Remove(c.place)
		c.place = nil
	}
	if c.deciding == 0 && !c.ended {
		c.place = c.bound.idle.PushBack(c)
	}
}

// leave counts a connection no more.
func (c *boundConn) leave() {
	if c.ended {
		return
	}
	c.ended = true
	c.stand()
	c.bound.open--
	c.bound.metrics.connections.Dec()
}

// decide notes that a decision begins (1) or is over (-1), or that a request has come
// (0). It is false where the connection has ended.
func (c *boundConn) decide(more int) bool {
	c.bound.mu.Lock()
	defer c.bound.mu.Unlock()
	c.deciding += more
	c.stand()
	return !c.ended
}

// Close implements net.Conn.
func (c *boundConn) Close() error {
	c.bound.mu.Lock()
	c.leave()
	c.bound.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *boundConn) Write(p []byte) (int, error) {
	if status, answer := asProblem(p); answer != nil {
		c.bound.metrics.answered(otherRoute, status)
		if _, err := c.Conn.Write(answer); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// CloseWrite ends what is sent: net/http does that so that an answer to a request
// that was not read whole arrives before the connection is reset.
func (c *boundConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}

type connectionKey struct{}

// withConnection is http.Server's ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// connectionOf is the connection of a request; nil where it came otherwise.
func connectionOf(r *http.Request) *boundConn {
	conn, _ := r.Context().Value(connectionKey{}).(*boundConn)
	return conn
}

// errEnded is of a request whose connection ended as it came in whole.
var errEnded = errors.New("the connection was ended to make room for another")

// keepDeciding serves decisions, and keeps their connections from being ended once a
// request has come in whole.
func keepDeciding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := connectionOf(r)
		if conn == nil {
			next.ServeHTTP(w, r)
			return
		}
		body := &incoming{ReadCloser: r.Body, conn: conn}
		defer body.over()
		if r.ContentLength == 0 {
			body.whole()
		}
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// incoming is the body of a request for a decision.
type incoming struct {
	io.ReadCloser
	conn *boundConn
	kept bool
}

// Read implements io.Reader. Nothing is decided for a connection that has ended.
func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !i.whole() {
		return n, errEnded
	}
	return n, err
}

// whole notes that the request has come in; false: its connection has ended.
func (i *incoming) whole() bool {
	if i.kept {
		return true
	}
	i.kept = i.conn.decide(1)
	if !i.kept {
		i.conn.decide(-1)
	}
	return i.kept
}

func (i *incoming) over() {
	if i.kept {
		i.conn.decide(-1)
	}
}
