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

// mostConnections is how many connections the daemon holds open at once. It is more than
// the requests that may be under way, so that a request too many still gets its answer.
const mostConnections = 2048

// openAtOnce is how many connections may be open: at most half of the files that the
// process may open, because the store and the jobs need files too.
func openAtOnce() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur/2 > mostConnections {
		return mostConnections
	}
	return int(files.Cur / 2)
}

// boundListener bounds how many connections are open at once without turning anybody
// away: if one more arrives, it closes the connection that was idle for longest. A
// connection is idle unless a decision is under way on it: it waits for its next request,
// or has sent none yet, or only part of one.
type boundListener struct {
	net.Listener
	most    int
	metrics *httpMetrics

	mu   sync.Mutex // guards all below, and what each connection says
	open int
	idle list.List // of *boundConn; the one idle for longest is in front
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
		_ = longest.Close() // closed either way
	}
	return c, nil
}

// admit counts a connection. It returns the connection to close in its place, or nil.
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

// boundConn is one connection of a boundListener.
type boundConn struct {
	net.Conn
	bound *boundListener

	// The listener's lock guards all below.
	place    *list.Element // in the idle list; nil: it is not idle
	deciding int           // decisions under way; HTTP/2 can have several
	ended    bool
}

// stand puts an idle connection at the back of the idle list, and takes any other out.
func (c *boundConn) stand() {
	if c.place != nil {
		c.bound.idle.Remove(c.place)
		c.place = nil
	}
	if c.deciding == 0 && !c.ended {
		c.place = c.bound.idle.PushBack(c)
	}
}

// leave stops counting a connection.
func (c *boundConn) leave() {
	if c.ended {
		return
	}
	c.ended = true
	c.stand()
	c.bound.open--
	c.bound.metrics.connections.Dec()
}

// decide notes that a decision begins (1) or is over (-1), or that a request has arrived
// (0). It returns false if the connection has ended.
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

// CloseWrite closes the sending side. net/http calls it so that the answer to a request
// that it did not read completely arrives before the connection is reset.
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

// connectionOf returns the connection of a request; nil if it did not come through a
// boundListener.
func connectionOf(r *http.Request) *boundConn {
	conn, _ := r.Context().Value(connectionKey{}).(*boundConn)
	return conn
}

// errEnded reports that a connection was closed just as its request was complete.
var errEnded = errors.New("the connection was ended to make room for another")

// keepDeciding serves decisions. Once a request has arrived completely, its connection is
// not closed for another.
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

// Read implements io.Reader. At the end of the body it fails if the connection has ended,
// so that nothing is decided for it.
func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !i.whole() {
		return n, errEnded
	}
	return n, err
}

// whole notes that the request is complete. It returns false if the connection has ended.
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
