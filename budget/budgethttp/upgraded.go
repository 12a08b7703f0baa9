package budgethttp

import "io"

// upgraded is a connection that was handed over to the caller. Closing it frees the
// request's context.
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

// halfCloser can close only its writing side.
type halfCloser interface{ CloseWrite() error }

// handOver wraps the body of a response of status 101. The wrapper keeps the abilities of
// net/http's body.
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
