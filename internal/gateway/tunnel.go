package gateway

import (
	"io"
	"net"
	"sync"
)

// backward is the way from a server to a program. It can be closed as long as nothing has
// passed.
type backward struct {
	program net.Conn
	ended   chan struct{} // closed when the server has ended

	mu       sync.Mutex // guards what follows
	used     bool
	silenced bool
}

// from begins to copy what a server says.
func (b *backward) from(server net.Conn) {
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		_, err := io.Copy(b, server)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.silenced {
			return
		}
		if half, ok := b.program.(halfCloser); ok && err == nil {
			_ = half.CloseWrite() // the other way shows what comes of it
			return
		}
		closeAll(b.program, server)
	}()
}

type halfCloser interface{ CloseWrite() error }

// Write implements io.Writer.
func (b *backward) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silenced {
		return 0, net.ErrClosed
	}
	b.used = true
	return b.program.Write(text)
}

// silence closes the way; false: something has passed already.
func (b *backward) silence() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silenced = !b.used
	return b.silenced
}

// isUsed reports whether something has passed.
func (b *backward) isUsed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// forward copies what a program says to the server until it ends.
func forward(server net.Conn, program io.Reader) {
	_, err := io.Copy(server, program)
	if half, ok := server.(halfCloser); ok && err == nil {
		_ = half.CloseWrite() // the other way shows what comes of it
		return
	}
	closeAll(server)
}
