package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotactl/quotactl/budget"
)

// The bounds of the answers of /healthz and /readyz.
const (
	pulseLives  = 3 * time.Minute  // the daemon looks at its clock once a minute at least
	answerFresh = 10 * time.Second // a store that answered so lately is not asked again
	lastScrape  = 2 * time.Second  // what a request under way has left at the end
)

// pulse is what is known of the daemon's and the store's life.
type pulse struct {
	mu              sync.Mutex // guards all below
	beaten, heardAt time.Time
	failure         error // of the last call on the store
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beaten = time.Now()
}

func (p *pulse) heard(failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heardAt, p.failure = time.Now(), failure
}

func (p *pulse) read() (beaten, heardAt time.Time, failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.beaten, p.heardAt, p.failure
}

// listener serves /metrics, /healthz and /readyz.
type listener struct {
	metrics *metrics
	budgets map[string]*budget.Budget
	drain   <-chan struct{}
	timeout time.Duration // the store's
}

// listenAddress completes an address: without a host it is this machine's alone.
func listenAddress(text string) (string, error) {
	if !strings.Contains(text, ":") {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return "", usage("--listen %q: write a port, or host:port", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// serve listens until the returned function is called.
func (l *listener) serve(ctx context.Context, address string, a *app) (stop func() error, err error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w: give --listen another address", err)
	}
	log := a.logger()
	log.Info("metrics and health", "address", "http://"+socket.Addr().String())
	server := &http.Server{Handler: l.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), lastScrape)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // what is left had its time
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	}, nil
}

func (l *listener) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(l.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, l.unhealthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { tell(w, l.unready(r.Context())) })
	return mux
}

// tell is 200 and ok, or 503 and why not.
func tell(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, why+"\n") // whoever asked has gone
		return
	}
	_, _ = io.WriteString(w, "ok\n") // as above
}

// unhealthy says why the process should be started anew; nothing when it lives.
func (l *listener) unhealthy() string {
	if beaten, _, _ := l.metrics.pulse.read(); !beaten.IsZero() && time.Since(beaten) > pulseLives {
		return fmt.Sprintf("the scheduler has not looked at its clock for %s", time.Since(beaten).Round(time.Second))
	}
	return ""
}

// unready says why no pass would go well now. The store is asked unless it has
// just answered.
func (l *listener) unready(ctx context.Context) string {
	select {
	case <-l.drain:
		return "draining: told to stop"
	default:
	}
	if _, heardAt, failure := l.metrics.pulse.read(); failure == nil && !heardAt.IsZero() && time.Since(heardAt) < answerFresh {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for _, b := range l.budgets {
		if _, err := b.Status(ctx); err != nil {
			return "the store does not serve: " + reason(err)
		}
		return ""
	}
	return ""
}
