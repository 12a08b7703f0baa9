package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/serve"
)

// The bounds of the answers of /healthz and /readyz, and of what a supervisor is told.
const (
	pulseLives  = 30 * time.Second // the daemon looks at its clock every two seconds
	answerFresh = 10 * time.Second // a store that answered so lately is not asked again
	lastRequest = 2 * time.Second  // what a request under way has left at the end, beside the store's time
)

// pulse is what is known of the daemon's and the store's life.
type pulse struct {
	first chan struct{} // closed when the scheduler first looks at its clock

	mu              sync.Mutex // guards all below
	beaten, heardAt time.Time
	failure         error // of the last call on the store
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beaten.IsZero() {
		close(p.first)
	}
	p.beaten = time.Now()
}

// silent is how long the scheduler has not looked at its clock, where that is too
// long; else 0.
func (p *pulse) silent() time.Duration {
	beaten, _, _ := p.read()
	if since := time.Since(beaten); !beaten.IsZero() && since > pulseLives {
		return since
	}
	return 0
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

// listener serves /metrics, /healthz and /readyz, and the decisions.
type listener struct {
	metrics *metrics
	budgets func() map[string]*budget.Budget // those in force
	drain   <-chan struct{}
	timeout time.Duration // the store's
	servers *servers
	// connections is how many may be open at once; 0: mostConnections.
	connections int
}

// The bounds of what a connection may send and take.
const (
	maxHeader   = 16 << 10
	headerTime  = 5 * time.Second
	requestTime = 10 * time.Second // for its header and body
	answerTime  = 30 * time.Second
	idleTime    = time.Minute
)

// serve listens, at the address that it is called by, until the returned function
// is called.
func (l *listener) serve(ctx context.Context, e *endpoint, a *app) (called string, stop func() error, err error) {
	socket, err := e.open(ctx)
	if err != nil {
		return "", nil, err
	}
	if called, err = e.called(socket); err != nil {
		return "", nil, errors.Join(err, socket.Close())
	}
	socket = boundConnections(socket, cmp.Or(l.connections, mostConnections))
	log := a.logger()
	log.Info("listening: decisions, metrics and health", "address", called, "token", e.token != "")
	server := &http.Server{
		Handler: l.handler(), TLSConfig: e.secure, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() {
		if e.secure != nil {
			ended <- server.ServeTLS(socket, "", "")
			return
		}
		ended <- server.Serve(socket)
	}()
	return called, func() error {
		l.servers.stop()
		ctx, cancel := context.WithTimeout(context.Background(), lastRequest+l.timeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // what is left had its time
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", called, err)
		}
		return nil
	}, nil
}

// garbage is how much a serving daemon lets pile up before it is collected, in
// percent of what lives. That is a few MB, and requests by the thousands leave as
// much behind many times a second: each collection saved is worth more than the
// 20 MB.
const garbage = 400

// collectSeldom sets that, unless the environment's GOGC says otherwise.
func (a *app) collectSeldom() {
	if _, set := a.env("GOGC"); !set {
		debug.SetGCPercent(garbage)
	}
}

// handler guards all that tells of budgets or asks the store; /healthz does neither.
func (l *listener) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", l.servers.guard(promhttp.HandlerFor(l.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, l.unhealthy()) })
	mux.Handle("GET /readyz", l.servers.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tell(w, l.unready(r.Context())) })))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") { // thousands a second, by whole paths
			l.servers.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
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

// unhealthy says why the process should be started anew; nothing when it lives, or
// finishes what is under way.
func (l *listener) unhealthy() string {
	select {
	case <-l.drain: // no clock is looked at any more
		return ""
	default:
	}
	if silent := l.metrics.pulse.silent(); silent > 0 {
		return fmt.Sprintf("the scheduler has not looked at its clock for %s", silent.Round(time.Second))
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
	for _, b := range l.budgets() {
		if _, err := b.Status(ctx); err != nil {
			return "the store does not serve: " + serve.Reason(err)
		}
		return ""
	}
	return ""
}
