package redisstore_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// proxy stands between clients and a server, and spoils answers of scripts after
// the server has run them. All else goes through, a replica's stream too.
type proxy struct {
	addr   string
	target atomic.Pointer[string]
	hold   atomic.Pointer[chan struct{}] // requests of scripts wait for it, those of later connections do not

	next    chan fate     // what becomes of the next answers, before chance decides
	later   chan struct{} // each resetLater waits for one
	each    atomic.Int64  // ns that every answer takes
	percent atomic.Int64  // of answers that are spoilt
	slowest time.Duration
	mu      sync.Mutex // guards rng
	rng     *rand.Rand

	scripts, dropped, reset, delayed atomic.Int64

	conns struct {
		sync.Mutex
		open map[net.Conn]bool
	}
}

// What a proxy does with an answer.
type fate int

const (
	passOn fate = iota
	drop        // it and all that follows on its connection vanish
	reset       // the connection is reset in its place
	delay
	resetLater // the connection is reset in its place once the test says so
)

// kind is what a request means to the answers that follow it.
type kind int

const (
	plain  kind = iota
	script      // its answer may be spoilt
	stream      // what follows is no more question and answer
)

// startProxy starts a proxy that spoils nothing yet. Its target may be set later.
func startProxy(t testing.TB, target string, seed uint64, slowest time.Duration) *proxy {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{addr: l.Addr().String(), slowest: slowest, next: make(chan fate, 16), later: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, seed))}
	p.target.Store(&target)
	p.conns.open = map[net.Conn]bool{}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		close(p.later)
		_ = l.Close()
		p.conns.Lock()
		for c := range p.conns.open {
			_ = c.Close()
		}
		p.conns.open = nil
		p.conns.Unlock()
		running.Wait()
	})
	return p
}

// keep notes a connection for the end; false when that has come.
func (p *proxy) keep(c net.Conn) bool {
	p.conns.Lock()
	defer p.conns.Unlock()
	if p.conns.open == nil {
		return false
	}
	p.conns.open[c] = true
	return true
}

func (p *proxy) forget(c net.Conn) {
	p.conns.Lock()
	defer p.conns.Unlock()
	delete(p.conns.open, c)
	_ = c.Close()
}

func (p *proxy) serve(client net.Conn) {
	if !p.keep(client) {
		_ = client.Close()
		return
	}
	defer p.forget(client)
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil || !p.keep(server) {
		return
	}
	defer p.forget(server)
	kinds := make(chan kind, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer halfClose(server) // what was sent is still run, and answered
		p.requests(bufio.NewReader(client), server, kinds)
	}()
	p.answers(bufio.NewReader(server), client, kinds)
	_ = client.Close() // ends the requests too
	_ = server.Close()
	<-done
}

func halfClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// requests lets requests through and tells of each what it is.
func (p *proxy) requests(from *bufio.Reader, to io.Writer, kinds chan<- kind) {
	for {
		request, err := readMessage(from)
		if err != nil {
			return
		}
		k := kindOf(request)
		kinds <- k
		if hold := p.hold.Load(); k == script && hold != nil && p.hold.CompareAndSwap(hold, nil) {
			<-*hold
		}
		if _, err := to.Write(request); err != nil {
			return
		}
		if k == stream {
			_, _ = io.Copy(to, from)
			return
		}
	}
}

// answers lets answers through, or not.
func (p *proxy) answers(from *bufio.Reader, to net.Conn, kinds <-chan kind) {
	for {
		if _, err := from.Peek(1); err != nil {
			return
		}
		k := <-kinds // the request was noted before it was sent
		if k == stream {
			_, _ = io.Copy(to, from)
			return
		}
		answer, err := readMessage(from)
		if err != nil {
			return
		}
		what, wait := passOn, time.Duration(0)
		if k == script && !bytes.HasPrefix(answer, []byte("-NOSCRIPT")) {
			what, wait = p.fate()
		}
		switch what {
		case drop:
			_, _ = io.Copy(io.Discard, from)
			return
		case reset, resetLater:
			if what == resetLater {
				<-p.later
			}
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			return
		case delay:
			<-time.After(wait)
		}
		if _, err := to.Write(answer); err != nil {
			return
		}
	}
}

// fate decides on one script's answer.
func (p *proxy) fate() (fate, time.Duration) {
	p.scripts.Add(1)
	select {
	case what := <-p.next:
		return what, 0
	default:
	}
	if each := p.each.Load(); each > 0 {
		return delay, time.Duration(each)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng.Int64N(100) >= p.percent.Load() {
		return passOn, 0
	}
	switch what := drop + fate(p.rng.IntN(3)); what {
	case drop:
		p.dropped.Add(1)
		return drop, 0
	case reset:
		p.reset.Add(1)
		return reset, 0
	default:
		p.delayed.Add(1)
		return what, time.Duration(p.rng.Int64N(int64(p.slowest)))
	}
}

// spoilt is how many answers were not let through as they came.
func (p *proxy) spoilt() int64 { return p.dropped.Load() + p.reset.Load() + p.delayed.Load() }

func (p *proxy) String() string {
	return fmt.Sprintf("%d answers of scripts: %d dropped, %d reset, %d delayed", p.scripts.Load(), p.dropped.Load(), p.reset.Load(), p.delayed.Load())
}

// kindOf reads the first word of a request.
func kindOf(request []byte) kind {
	words := strings.SplitN(string(request[:min(len(request), 64)]), "\r\n", 4)
	if len(words) < 3 {
		return plain
	}
	switch strings.ToUpper(words[2]) {
	case "EVAL", "EVALSHA":
		return script
	case "PSYNC", "SYNC", "SUBSCRIBE", "PSUBSCRIBE", "MONITOR":
		return stream
	}
	return plain
}

// readMessage reads one request or answer, whole.
func readMessage(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n := 0
	switch line[0] {
	case '$', '*', '%', '~', '>', '=':
		if n, err = strconv.Atoi(strings.TrimSpace(string(line[1:]))); err != nil {
			return nil, fmt.Errorf("read a length: %w", err)
		}
	}
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return line, nil
		}
		whole := make([]byte, len(line)+n+2)
		copy(whole, line)
		_, err := io.ReadFull(from, whole[len(line):])
		return whole, err
	case '%':
		n *= 2
	}
	for range max(n, 0) {
		part, err := readMessage(from)
		if err != nil {
			return nil, err
		}
		line = append(line, part...)
	}
	return line, nil
}
