package redisstore_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
)

// faultyProxy stands between a store and its server and spoils the replies to
// some scripts, which the server has run by then: it swallows them, resets the
// connection, or holds them back for a while. All else passes.
type faultyProxy struct {
	listener net.Listener
	server   string
	spoils   atomic.Bool
	spoiled  atomic.Int64
	more     atomic.Int64 // of 100 replies, so many more are swallowed

	mu    sync.Mutex // guards all below
	rng   *rand.Rand
	conns []net.Conn
}

func startFaultyProxy(t *testing.T, server string, seed uint64) *faultyProxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &faultyProxy{listener: listener, server: server, rng: rand.New(rand.NewPCG(seed, 99))}
	p.spoils.Store(true)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.carry(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *faultyProxy) url() string { return "redis://" + p.listener.Addr().String() }

// carry carries one connection until either side ends it.
func (p *faultyProxy) carry(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var script atomic.Bool // what was asked last is a script
	go func() {
		defer func() { _, _ = client.Close(), server.Close() }()
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if bytes.Contains(buffer[:n], []byte("\r\neval")) {
				script.Store(true)
			}
			if _, failed := server.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	defer func() { _, _ = client.Close(), server.Close() }()
	buffer := make([]byte, 1<<16)
	swallow := false
	for {
		n, err := server.Read(buffer)
		if n > 0 && !swallow && script.Swap(false) {
			swallow = !p.passes(client)
		}
		if !swallow {
			if _, failed := client.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passes decides on one reply: false when it is swallowed, with all that comes
// after it on the same connection.
func (p *faultyProxy) passes(client net.Conn) bool {
	if !p.spoils.Load() {
		return true
	}
	p.mu.Lock()
	fault, hold := p.rng.Int64N(100)-p.more.Load(), time.Duration(p.rng.IntN(30))*time.Millisecond
	p.mu.Unlock()
	switch {
	case fault < 8:
	case fault < 16:
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closing then resets
		}
		_ = client.Close()
	case fault < 26: // the client waits, and may have given up by then
		<-time.After(hold)
		return true
	default:
		return true
	}
	p.spoiled.Add(1)
	return false
}
