package redisstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// greeting is a connection that says who it is together with its first command, not before it. The
// client library would wait for an answer to HELLO, and then to SELECT, so that the first command of
// a far server took three round trips. The server gets no HELLO: without one it speaks RESP2.
type greeting struct {
	net.Conn
	raw     syscall.RawConn // nil: not known
	held    []byte          // what goes out before the first command
	answers int             // how many answers to it are still to come
	line    []byte          // of the answer that is being read
	rest    []byte          // what the library is to read first
	refused bool            // the server has refused the greeting, and the connection is closed
	known   bool            // its first answer began as one of Redis does
}

// checked is a greeting whose idle connection the library can check before it uses it.
type checked struct {
	*greeting
	syscall.Conn
}

// dialer returns a function that connects and greets as this user, for this database. It passes on
// how long connecting took.
func (t target) dialer(o *redis.Options, took func(time.Duration)) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := redis.NewDialer(o)
	var held []byte
	answers := 0
	say := func(words ...string) {
		answers++
		held = append(held, "*"+strconv.Itoa(len(words))+"\r\n"...)
		for _, word := range words {
			held = append(held, "$"+strconv.Itoa(len(word))+"\r\n"+word+"\r\n"...)
		}
	}
	if t.password != "" {
		say("AUTH", cmp.Or(t.username, "default"), t.password)
	}
	if t.db > 0 {
		say("SELECT", strconv.Itoa(t.db))
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		took(time.Since(began))
		g := &greeting{Conn: conn, held: held, answers: answers}
		known, ok := conn.(syscall.Conn)
		if !ok {
			return g, nil
		}
		if g.raw, err = known.SyscallConn(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return checked{g, known}, nil
	}
}

// hello is in the library's command HELLO, and noHello is the answer of a server that has none.
var (
	hello   = []byte("$5\r\nhello\r\n")
	noHello = []byte("-ERR unknown command 'hello'\r\n")
)

// beginsReply is how the first answer of a server begins that speaks RESP2, with a length that an answer
// to this store can have. Another kind of server sends something else, or more than memory holds.
var beginsReply = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([-+]|:-?\d*(\r|$)|[$*](-1?|\d{0,8})(\r|$))`)
})

// Write sends the greeting before the first command, and keeps HELLO back.
func (g *greeting) Write(b []byte) (int, error) {
	if bytes.Contains(b[:min(len(b), 16)], hello) {
		g.rest = append(g.rest, noHello...)
		return len(b), nil
	}
	if g.held == nil {
		return g.Conn.Write(b)
	}
	n := len(g.held)
	sent, err := g.Conn.Write(append(bytes.Clone(g.held), b...))
	g.held = nil
	return max(0, sent-n), err
}

// Read leaves out the answers to the greeting. If one of them is not good, it is the answer to
// the command, as it says why that was not run.
func (g *greeting) Read(b []byte) (int, error) {
	for len(g.rest) == 0 {
		if g.refused {
			return 0, io.EOF // the store sends the next command on another connection
		}
		n, err := g.read(b)
		if n > 0 && !g.known {
			if g.known = beginsReply().Match(b[:n]); !g.known {
				line, _, _ := strings.Cut(string(b[:n]), "\n") // what follows may repeat the password
				return 0, fmt.Errorf("%w: %s", errForeign, shown(line))
			}
		}
		if g.answers == 0 || err != nil {
			return n, err
		}
		g.take(b[:n])
	}
	n := copy(b, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// take reads answers to the greeting, a line each; what follows them is for the library.
func (g *greeting) take(b []byte) {
	for g.answers > 0 {
		line, after, whole := bytes.Cut(b, []byte("\n"))
		g.line = append(g.line, line...)
		if !whole {
			return
		}
		if g.answers, b = g.answers-1, after; !bytes.HasPrefix(g.line, []byte{'+'}) {
			if !bytes.HasPrefix(g.line, []byte{'-'}) { // no answer to a greeting
				g.line = []byte("$-1\r")
			}
			g.rest, g.refused = append(g.line, '\n'), true
			_ = g.Close() // nothing was sent that could be lost
			return
		}
		g.line = g.line[:0]
	}
	g.rest = append(g.rest, b...)
}

// read reads what the server has sent. Past the deadline it looks once more: what the server sent in
// time is there then, however late this process gets to run.
func (g *greeting) read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 || g.raw == nil || !errors.Is(err, os.ErrDeadlineExceeded) || g.SetReadDeadline(time.Time{}) != nil {
		return n, err
	}
	failed := g.raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), b)
		return true
	})
	if failed == nil && n > 0 {
		return n, nil
	}
	return 0, err
}
