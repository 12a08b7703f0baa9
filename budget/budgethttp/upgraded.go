package budgethttp

import "io"

// upgraded is a connection that was handed over to the caller. When that is closed
// the request's context is freed.
type upgraded struct {
	io.ReadWriteCloser
	attempt *attempt
}

// Close closes the connection.
func (u upgraded) Close() error {
	err := u.ReadWriteCloser.Close()
	u.attempt.cancel(nil)
	return err
}

// halfCloser can close the side that it writes to alone.
type halfCloser interface{ CloseWrite() error }

// handOver wraps the body of a response of status 101. What such a body of net/http
// can do it still can.
func (a *attempt) handOver(conn io.ReadWriteCloser) io.ReadWriteCloser {
	u := upgraded{conn, a}
	if half, ok := conn.(halfCloser); ok {
		return struct {
			upgraded
			halfCloser
		}{u, half}
	}
	return u
}
