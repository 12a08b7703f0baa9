package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// closeGrace is how long shutting down waits for answers to be read, and for connections that never sent a request.
const closeGrace = 2 * time.Second

// service is a server's listener.
type service struct {
	http *http.Server
	url  string
	done chan struct{} // closed when serving has ended
	err  error         // why it ended, if nobody asked for it; read after done
}

// Listen serves in the background on addr, host:port, until ctx ends or the server is closed; an empty addr is a free
// port of 127.0.0.1. When it returns nil, [Server.URL] is known and connections are accepted. At the end of ctx requests
// still waiting out their latency are answered at once, and connections that do not finish within two seconds are cut.
// It returns an error if the address is not available, or if the server already listens or is closed.
func (s *Server) Listen(ctx context.Context, addr string) error {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serve != nil {
		return fmt.Errorf("sandbox: listening on %s: it already has an address, %s: make one sandbox per address", addr, s.serve.url)
	}
	select {
	case <-s.hurry: // closed before stopServing takes the lock, so stopServing misses no listener
		return fmt.Errorf("sandbox: listening on %s: %w: make a new one", addr, errClosed)
	default:
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("sandbox: listening: %w: give a free host:port such as 127.0.0.1:8080, or none for a free port", err)
	}
	sv := &service{
		http: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(os.Stderr, "sandbox: ", 0)},
		url:  "http://" + reachable(ln.Addr()),
		done: make(chan struct{}),
	}
	s.serve = sv
	forget := context.AfterFunc(ctx, func() { _ = s.shutdown() })
	go func() {
		defer close(sv.done)
		defer forget()
		if err := sv.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			sv.err = fmt.Errorf("sandbox: serving on %s: %w", sv.url, err)
		}
		_ = s.shutdown() // Serve returns when the shutdown begins; wait until it has ended
	}()
	return nil
}

// URL returns where the server listens, such as http://127.0.0.1:8080, without a path; empty before [Server.Listen].
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serve == nil {
		return ""
	}
	return s.serve.url
}

// Wait blocks until serving has ended. It returns nil when Listen's context or Close ended it, or when the server never
// listened, and an error when the listener failed.
func (s *Server) Wait() error {
	s.mu.Lock()
	sv := s.serve
	s.mu.Unlock()
	if sv == nil {
		return nil
	}
	<-sv.done
	return sv.err
}

// stopServing is called once, through s.shutdown.
func (s *Server) stopServing() error {
	close(s.hurry)
	s.mu.Lock()
	sv := s.serve
	s.mu.Unlock()
	if sv == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := sv.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = sv.http.Close()
	}
	if err != nil {
		return fmt.Errorf("sandbox: closing the listener on %s: %w", sv.url, err)
	}
	return nil
}

// reachable turns a listener's address into one to connect to: if it listens on all addresses, the loopback.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
	}
	return addr.String()
}
