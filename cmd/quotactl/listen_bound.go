package main

import (
	"net"
	"sync"
)

// mostConnections is how many connections the daemon holds open at once: more
// than requests may be under way, so that one too many is still told so.
const mostConnections = 2048

// boundListener bounds the connections that are open at once, those that sent no
// request yet too: without a token nobody may take all the process's files.
// Further ones stay in the system's queue until one ends.
type boundListener struct {
	net.Listener
	open    chan struct{} // holds one for each connection that is open
	closed  chan struct{}
	closing sync.Once
}

func boundConnections(l net.Listener, most int) *boundListener {
	return &boundListener{Listener: l, open: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *boundListener) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &boundConn{Conn: conn, end: sync.OnceFunc(func() { <-l.open })}, nil
}

// Close implements net.Listener.
func (l *boundListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c *boundConn) Close() error {
	defer c.end()
	return c.Conn.Close()
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
