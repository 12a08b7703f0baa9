package gateway

import (
	"io"
	"net"
	"sync/atomic"
)

// backward is the way from a server to a program. It belongs to who takes it first: the server
// when it says something or ends, or silence.
type backward struct {
	program net.Conn
	ended   chan struct{} // closed when the server has ended
	taken   atomic.Bool
	flows   bool // the server has it; only its goroutine asks
}

// from begins to copy what a server says.
func (b *backward) from(server net.Conn) {
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		_, err := io.Copy(b, server)
		if b.take() && !endsWriting(b.program, err) {
			closeAll(server)
		}
	}()
}

// endsWriting tells a side that the other one has ended: the other way shows what comes of it.
// Without such an end, after an error for example, it closes the side, and is false.
func endsWriting(side net.Conn, err error) bool {
	half, ok := side.(interface{ CloseWrite() error })
	if !ok || err != nil {
		closeAll(side)
		return false
	}
	_ = half.CloseWrite() // as above
	return true
}

// Write implements io.Writer.
func (b *backward) Write(text []byte) (int, error) {
	if !b.take() {
		return 0, net.ErrClosed
	}
	return b.program.Write(text)
}

func (b *backward) take() bool {
	b.flows = b.flows || b.taken.CompareAndSwap(false, true)
	return b.flows
}

// silence closes the way; false: something has passed already.
func (b *backward) silence() bool { return b.taken.CompareAndSwap(false, true) }

// forward copies what a program says to the server until it ends.
func forward(server net.Conn, program io.Reader) {
	_, err := io.Copy(server, program)
	endsWriting(server, err)
}
