package redisstore_test

import (
	"net"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// wall is a network of two sides, which may be cut. Servers stand behind gates;
// who connects from the far address is on the far side. While it is cut, bytes
// wait, as those of a network that drops them do, and go on when it is whole.
type wall struct {
	far string

	mu    sync.Mutex // guards whole
	whole chan struct{}
}

func newWall(far string) *wall {
	whole := make(chan struct{})
	close(whole)
	return &wall{far: far, whole: whole}
}

func (w *wall) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole = make(chan struct{})
}

func (w *wall) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.whole)
}

// gate is the address of a server for both sides.
func (w *wall) gate(t testing.TB, target string, far bool) string {
	t.Helper()
	return w.gateAt(t, "127.0.0.1:0", target, far)
}

func (w *wall) gateAt(t testing.TB, address, target string, far bool) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", address))(t)
	end := make(chan struct{})
	t.Cleanup(func() {
		close(end)
		_ = l.Close()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(client, target, far, end)
		}
	}()
	return l.Addr().String()
}

func (w *wall) serve(client net.Conn, target string, far bool, end <-chan struct{}) {
	defer func() { _ = client.Close() }()
	host, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	crosses := (host == w.far) != far
	if crosses && !w.passes(end) {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		defer func() { _, _ = client.Close(), server.Close() }()
		w.carry(client, server, crosses, end)
	}()
	w.carry(server, client, crosses, end)
}

// carry copies until one end is closed.
func (w *wall) carry(from, to net.Conn, crosses bool, end <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if crosses && !w.passes(end) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// passes waits until the wall is whole; false at the end of the test.
func (w *wall) passes(end <-chan struct{}) bool {
	w.mu.Lock()
	whole := w.whole
	w.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-end:
		return false
	}
}
