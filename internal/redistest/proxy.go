package redistest

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// Proxy sits between clients and a server. It loses replies of scripts after the server
// has run them; other commands and replies pass.
type Proxy struct {
	Addr   string
	listen net.Listener
	Rate   atomic.Int64 // how many of 100 replies are lost
	Drop   atomic.Bool  // every reply is dropped silently

	mu     sync.Mutex // guards all below
	target string
	rng    *rand.Rand
	counts map[string]int
	conns  map[net.Conn]bool
}

// StartProxy starts a proxy for a server's address that loses nothing yet.
func StartProxy(t testing.TB, target string, seed uint64) *Proxy {
	t.Helper()
	listen := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &Proxy{
		Addr: listen.Addr().String(), target: target, listen: listen,
		rng: rand.New(rand.NewPCG(seed, 7)), counts: map[string]int{}, conns: map[net.Conn]bool{},
	}
	go func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listen.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for conn := range p.conns {
			_ = conn.Close()
		}
	})
	return p
}

// fate decides what happens to a script's reply.
func (p *Proxy) fate() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	fate := "passed"
	if p.rng.Int64N(100) < p.Rate.Load() {
		fate = []string{"dropped", "reset", "delayed"}[p.rng.IntN(3)]
	}
	if p.Drop.Load() {
		fate = "dropped"
	}
	p.counts[fate]++
	return fate
}

// serve handles one connection, whose client sends a command only after the reply to the
// one before.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	var script atomic.Bool // the command under way runs a script
	go func() {
		defer func() { _ = server.Close() }()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if n > 0 {
				if buffer[0] == '*' {
					script.Store(bytes.Contains(bytes.ToLower(buffer[:min(n, 40)]), []byte("eval")))
				}
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { _ = client.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 && script.Swap(false) {
			switch p.fate() {
			case "dropped":
				_, _ = io.Copy(io.Discard, server) // until the client closes the connection
				return
			case "reset":
				if tcp, ok := client.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				return
			case "delayed":
				timer := time.NewTimer(p.delay())
				<-timer.C
			}
		}
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// delay is a random delay from nothing to longer than a call's timeout.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(100 * time.Millisecond)))
}

// Counts is how many replies of scripts had which fate.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Lead sends new connections to another server and closes the existing ones.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for conn := range p.conns {
		_ = conn.Close()
		delete(p.conns, conn)
	}
}
