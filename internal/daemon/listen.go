package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/page"
	"github.com/quotactl/quotactl/internal/serve"
)

// PulseLives is how long the daemon counts as alive after its scheduler checked its clock,
// which it does every two seconds.
const PulseLives = 30 * time.Second

const (
	answerFresh = 10 * time.Second // a store that answered within this time is not asked again
	lastRequest = 2 * time.Second  // how long a request under way has at the end, plus the store's timeout
)

// pulse records when the scheduler and the store last gave a sign of life.
type pulse struct {
	first chan struct{} // closed when the scheduler first checks its clock

	mu              sync.Mutex // guards all below
	beaten, heardAt time.Time
	failure         error // of the last call to the store
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beaten.IsZero() {
		close(p.first)
	}
	p.beaten = time.Now()
}

// silent is how long ago the scheduler checked its clock, if that is longer than
// PulseLives; else 0.
func (p *pulse) silent() time.Duration {
	beaten, _, _ := p.read()
	if since := time.Since(beaten); !beaten.IsZero() && since > PulseLives {
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

// listener serves /metrics, /healthz, /readyz, the pages and the decisions.
type listener struct {
	site    *page.Site // nil: no pages
	metrics *metrics
	budgets func() map[string]*budget.Budget // those in force
	drain   <-chan struct{}
	timeout time.Duration // the store's
	servers *servers
	// connections is how many connections may be open at once; 0: openAtOnce.
	connections int
}

// The bounds of a connection.
const (
	maxHeader   = 16 << 10
	headerSlack = 4 << 10 // what the HTTP server reads beyond its own bound
	headerTime  = 5 * time.Second
	requestTime = 10 * time.Second // for its header and body
	answerTime  = 30 * time.Second
	idleTime    = time.Minute
)

// listening is a server that runs until it is stopped.
type listening struct {
	called string // its address for clients
	// over is closed when the server has ended, even if nobody stopped it.
	over <-chan struct{}
	// stop answers the requests under way and ends the server. The error says why the
	// server had ended before.
	stop func() error
}

// serve opens the endpoint and serves on it.
func (l *listener) serve(ctx context.Context, e *Endpoint, log *slog.Logger) (*listening, error) {
	socket, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	called, err := e.called(socket)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	log.Info("listening: decisions, metrics and health", "address", called, "token", e.token != "")
	return l.serveOn(socket, called, e.secure, log), nil
}

// serveOn serves on a socket.
func (l *listener) serveOn(socket net.Listener, called string, secure *tls.Config, log *slog.Logger) *listening {
	socket = boundConnections(socket, cmp.Or(l.connections, openAtOnce()), l.metrics.http)
	server := &http.Server{
		Handler: l.handler(), TLSConfig: secure, MaxHeaderBytes: maxHeader - headerSlack, ConnContext: withConnection, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	over := make(chan struct{})
	var ended error // read only after over is closed
	go func() {
		defer close(over)
		if secure != nil {
			ended = server.ServeTLS(socket, "", "")
			return
		}
		ended = server.Serve(socket)
	}()
	return &listening{called: called, over: over, stop: func() error {
		l.servers.stop()
		ctx, cancel := context.WithTimeout(context.Background(), lastRequest+l.timeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // the remaining requests have used up their time
		}
		l.servers.settled(ctx)
		if <-over; !errors.Is(ended, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: listening failed while the daemon was running: %w; start it again", called, ended)
		}
		return nil
	}}
}

// garbage is the GOGC of a serving daemon, in percent of the live heap. The live heap is a
// few MB, and thousands of requests leave as much garbage many times a second. Fewer
// collections are worth the additional 20 MB.
const garbage = 400

// collectSeldom sets GOGC to garbage, unless the environment sets GOGC.
func collectSeldom(env func(string) (string, bool)) {
	if _, set := env("GOGC"); !set {
		debug.SetGCPercent(garbage)
	}
}

// noSniff keeps browsers from guessing another type for an answer.
var noSniff = []string{"nosniff"}

// handler guards every path that shows budgets or asks the store; /healthz does neither.
func (l *listener) handler() http.Handler {
	pages := map[string]http.Handler{
		"/metrics": l.servers.guard(l.scrapes()),
		"/healthz": serve.KeepPagesOut(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tell(w, "not_live", l.unhealthy()) })),
		"/readyz":  l.servers.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tell(w, "not_ready", l.unready(r.Context())) })),
	}
	decisions := keepDeciding(l.servers)
	var site http.Handler
	if l.site != nil {
		site = l.servers.guard(l.site)
	}
	return l.metrics.http.counted(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Content-Type-Options"] = noSniff
		known := pages[r.URL.Path]
		if l.site != nil && l.site.Serves(r.URL.Path) {
			known = site
		}
		switch {
		case known == nil:
			decisions.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			serve.WrongMethod(w, serve.MethodsToRead)
		default:
			known.ServeHTTP(w, r)
		}
	}))
}

// mostScrapes is how many scrapes may be under way at once.
const mostScrapes = 4

// scrapes serves the metrics. A metric that cannot be collected is left out.
func (l *listener) scrapes() http.Handler {
	underWay := make(chan struct{}, mostScrapes)
	page := promhttp.HandlerFor(l.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case underWay <- struct{}{}:
			defer func() { <-underWay }()
		default:
			serve.Refuse(w, "busy", "too many scrapes are under way; try again in a moment")
			return
		}
		page.ServeHTTP(w, r)
	})
}

// tell answers 200 and ok, or 503 and why not.
func tell(w http.ResponseWriter, reason, why string) {
	if why != "" {
		serve.Refuse(w, reason, why)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // an error means that the client has left
}

// unhealthy says why the process should be restarted; "" when it is alive or draining.
func (l *listener) unhealthy() string {
	select {
	case <-l.drain: // the scheduler no longer checks its clock
		return ""
	default:
	}
	if silent := l.metrics.pulse.silent(); silent > 0 {
		return fmt.Sprintf("the scheduler has not checked its clock for %s", silent.Round(time.Second))
	}
	return ""
}

// unready says why the daemon is not ready; "" when it is. It asks the store unless the
// store has just answered.
func (l *listener) unready(ctx context.Context) string {
	select {
	case <-l.drain:
		return "draining: the daemon is stopping"
	default:
	}
	if _, heardAt, failure := l.metrics.pulse.read(); failure == nil && !heardAt.IsZero() && time.Since(heardAt) < answerFresh {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for _, b := range l.budgets() {
		if _, err := b.Status(ctx); err != nil {
			return "the store is not usable: " + answer.Reason(err)
		}
		return ""
	}
	return ""
}
