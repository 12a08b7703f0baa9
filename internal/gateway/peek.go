package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
)

// peeked is a connection whose beginning was read already; Read returns it again.
type peeked struct {
	net.Conn
	reader io.Reader
	target target // of what is handed to the server; without a host: the proxy itself

	offersHTTP bool // its hello names a protocol that is served here
	tooOld     bool // its hello names only versions of TLS that are not
}

// Read implements net.Conn.
func (p *peeked) Read(b []byte) (int, error) { return p.reader.Read(b) }

// CloseWrite tells the other side that nothing more comes.
func (p *peeked) CloseWrite() error {
	endsWriting(p.Conn, nil)
	return nil
}

// speaks is what a program speaks on a connection.
type speaks int

const (
	other speaks = iota
	speaksTLS
	speaksHTTP
)

const tlsHandshake = 0x16 // the first byte of a TLS connection

// peek reads the beginning of a connection: what the program speaks, and the name of the
// server that it asks for, in small letters; empty: it names none. If the context ends before
// that, the connection is closed.
func peek(ctx context.Context, conn net.Conn, from *bufio.Reader) (p *peeked, says speaks, name string, err error) {
	defer context.AfterFunc(ctx, func() { closeAll(conn) })()
	p = &peeked{Conn: conn, reader: from}
	first, err := from.Peek(1)
	switch {
	case err != nil:
		return p, other, "", err
	case first[0] == tlsHandshake:
		name, err = p.hello()
		return p, speaksTLS, name, err
	case isHTTP(from):
		return p, speaksHTTP, "", nil
	}
	return p, other, "", nil
}

// isHTTP reports whether a request line begins: a method, and a space.
func isHTTP(from *bufio.Reader) bool {
	for n := 1; n <= 24; n++ {
		begun, err := from.Peek(n)
		if err != nil {
			return false
		}
		switch c := begun[n-1] | 0x20; { // in small letters
		case c == ' ':
			return n > 1
		case c != '-' && (c < 'a' || c > 'z'):
			return false
		}
	}
	return false
}

// errHello ends a handshake once the hello has been read.
var errHello = errors.New("the hello was read")

// hello reads a ClientHello and keeps it to be read again.
func (p *peeked) hello() (name string, err error) {
	var read bytes.Buffer
	from := p.reader
	p.reader = io.TeeReader(from, &read)
	server := tls.Server(readOnly{p}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
			p.tooOld = !slices.ContainsFunc(hello.SupportedVersions, func(v uint16) bool { return v >= tls.VersionTLS12 })
			p.offersHTTP = slices.Contains(hello.SupportedProtos, "h2") || slices.Contains(hello.SupportedProtos, "http/1.1")
			return nil, errHello
		},
	})
	if err = server.Handshake(); errors.Is(err, errHello) {
		err = nil
	}
	p.reader = io.MultiReader(&read, from)
	return name, err
}

// readOnly is a connection to which nothing is written.
type readOnly struct{ *peeked }

// Write implements net.Conn.
func (readOnly) Write(b []byte) (int, error) { return len(b), nil }
