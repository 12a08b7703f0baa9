package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/screen"
)

// Options configure a Gateway for one command.
type Options struct {
	// Config is the configuration whose upstreams are metered.
	Config *config.Config
	// Open opens a budget, at its first call.
	Open func(name string) (*budget.Budget, error)
	// Secret returns a credential's secret; empty if it cannot be read.
	Secret func(config.Credential) string
	// Digest stands for the configuration and its store; see [Digest].
	Digest string
	// Call completes the calls of the command: labels, floor, policy.
	Call budgethttp.Options
	// Budgets are the budgets that the user has named; the calls to their upstreams charge them.
	Budgets []string
	// Wait is how long a call waits for its units; nil: as long as the job says, else 4 s.
	Wait *time.Duration
	// Tunnels are hosts that are not opened.
	Tunnels []string
	// Env is the environment in which the command would run without a gateway.
	Env []string
	// Temp is the folder for the certificates; empty: the system's.
	Temp string
	// NoHooks leaves out the hooks for Python and Node; Java adds the options for Java.
	NoHooks, Java bool
	// Screen has the zone of the times in refusals.
	Screen screen.Screen
	// Say takes sentences for the user; the same one again is nothing new.
	Say func(text string)
	Log *slog.Logger
}

// Gateway is a proxy that meters one command.
type Gateway struct {
	options     Options
	owners      *owners
	credentials *credentials
	meters      *meters
	tally       *tally
	wire        *wire
	authority   *authority
	around      *surroundings
	token       string
	charged     *lru.Cache[string, struct{}] // ids of charges that the program made
	busy        sync.RWMutex                 // a request holds it for reading, Close for writing

	ctx       context.Context // ends with the gateway
	cancel    context.CancelFunc
	stop      func()        // ends all requests, once
	opened    chan net.Conn // connections that are served
	listeners []net.Listener
	servers   []*http.Server
	running   sync.WaitGroup
}

// Start starts a gateway. The error says what to mend.
func Start(ctx context.Context, o Options) (*Gateway, error) {
	owners, err := newOwners(o.Config.Upstreams, o.Tunnels)
	if err != nil {
		return nil, err
	}
	if len(owners.places) == 0 {
		return nil, fmt.Errorf("%s names no host to meter: give an operation a match, or an upstream hosts = [\"…\"]", o.Config.File)
	}
	g := &Gateway{options: o, owners: owners, tally: newTally(), token: rand.Text(), opened: make(chan net.Conn)}
	if g.charged, err = lru.New[string, struct{}](mostCharged); err != nil {
		return nil, err
	}
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.stop = sync.OnceFunc(g.stopServing)
	g.credentials = newCredentials(o.Config.Upstreams, o.Budgets, o.Secret, o.Say)
	g.meters = &meters{open: o.Open, options: o.Call, wait: o.Wait, observer: g.tally.observer}
	if err := g.listen(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// listen makes what the command is given, and serves it.
func (g *Gateway) listen() (err error) {
	if g.authority, err = newAuthority(g.owners.names(), time.Now()); err != nil {
		return fmt.Errorf("make the certificates of this run: %w", err)
	}
	proxy, err := g.listener("127.0.0.1:0")
	if err != nil {
		return err
	}
	around := surroundOptions{
		env: g.options.Env, hosts: g.owners.names(), proxy: proxy.Addr().String(), token: g.token, ca: g.authority.pem(),
		noHooks: g.options.NoHooks, java: g.options.Java, temp: g.options.Temp,
	}
	var direct net.Listener
	if canTell(g.ctx) {
		// Not 127.0.0.1, where a program may have a server of its own: the hook for Python knows the
		// listener by its IP where a library hides the port.
		if direct, err = g.listener(fmt.Sprintf("127.81.%d.%d:0", mathrand.IntN(256), 1+mathrand.IntN(254))); err != nil {
			return err
		}
		around.direct = direct.Addr().String()
	}
	if g.around, err = surround(around); err != nil {
		return err
	}
	for _, text := range g.around.said {
		g.options.Say(text)
	}
	g.wire = newWire(g.around.roots, g.around.upstreamProxy)
	g.meters.options.Base = sender{g}
	inner := newHandler(g)
	front := newFront(g, inner)
	g.serve(g.handed(g.opened), inner, targetIn)
	g.serve(proxy, front, nil)
	if direct != nil {
		trusted := make(chan net.Conn)
		g.serve(g.handed(trusted), front, func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, trustedKey{}, true)
		})
		g.running.Go(func() { front.direct(direct, trusted) })
	}
	return nil
}

func (g *Gateway) listener(address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(g.ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on this machine for the command: %w", err)
	}
	g.listeners = append(g.listeners, l)
	return l, nil
}

// targetIn is the context of the requests of an opened connection.
func targetIn(ctx context.Context, conn net.Conn) context.Context {
	if opened, ok := conn.(*tls.Conn); ok {
		conn = opened.NetConn()
	}
	p, _ := conn.(*peeked)
	return context.WithValue(ctx, targetKey{}, p.target)
}

func (g *Gateway) serve(l net.Listener, handler http.Handler, of func(context.Context, net.Conn) context.Context) {
	server := &http.Server{
		Handler: handler, ConnContext: of, BaseContext: func(net.Listener) context.Context { return g.ctx },
		ReadHeaderTimeout: time.Minute, IdleTimeout: 10 * time.Minute, ErrorLog: g.serverLog(), MaxHeaderBytes: 1 << 20, DisableGeneralOptionsHandler: true,
	}
	g.servers = append(g.servers, server)
	g.running.Go(func() { _ = server.Serve(l) }) // it ends with Close
}

// serverLog takes what net/http logs: mostly programs that went away.
func (g *Gateway) serverLog() *log.Logger {
	return slog.NewLogLogger(g.options.Log.Handler(), slog.LevelDebug)
}

// handed is a listener of connections that something else accepted.
type handed struct {
	conns <-chan net.Conn
	ctx   context.Context
	end   context.CancelFunc
}

func (g *Gateway) handed(conns <-chan net.Conn) *handed {
	ctx, end := context.WithCancel(g.ctx)
	return &handed{conns, ctx, end}
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handed) Close() error {
	h.end()
	return nil
}

// Addr implements net.Listener.
func (h *handed) Addr() net.Addr { return &net.TCPAddr{} }

// acceptPause follows a failure to accept, such as too many open files.
const acceptPause = 50 * time.Millisecond

// direct serves the listener that needs no token: connections of the same user that begin
// with TLS are for the server that they name, and others ask the proxy.
func (f *front) direct(l net.Listener, proxied chan<- net.Conn) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if f.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.options.Log.Warn("a connection was not accepted", "error", err)
				select {
				case <-time.After(acceptPause):
					continue
				case <-f.ctx.Done():
				}
			}
			return
		}
		f.running.Go(func() { f.directly(conn, proxied) })
	}
}

func (f *front) directly(conn net.Conn, proxied chan<- net.Conn) {
	if !isOurs(conn) {
		closeAll(conn)
		return
	}
	p, says, name, err := peek(f.ctx, conn, bufio.NewReader(conn))
	if err == nil && says == speaksTLS && f.owners.opens(name, 443) {
		t, _ := targetAt("https", name)
		f.serveTLS(p, name, t)
		return
	}
	if err != nil || says != speaksHTTP {
		closeAll(conn)
		return
	}
	select {
	case proxied <- p:
	case <-f.ctx.Done():
		closeAll(conn)
	}
}

// Env is the environment of the command.
func (g *Gateway) Env() []string { return g.around.env }

// Exhausted is closed at the first refusal for good.
func (g *Gateway) Exhausted() <-chan struct{} { return g.tally.spent }

// closeTime bounds how long stop lets requests end by themselves.
const closeTime = time.Second

// stopServing ends all requests.
func (g *Gateway) stopServing() {
	ctx, cancel := context.WithTimeout(g.ctx, closeTime)
	defer cancel()
	for _, l := range g.listeners {
		_ = l.Close() // nothing is lost
	}
	for _, server := range g.servers {
		_ = server.Shutdown(ctx) // what takes longer is cut
	}
	g.cancel()
	for _, server := range g.servers {
		_ = server.Close() // as above
	}
	g.running.Wait()
	g.busy.Lock() // it is never unlocked: no request begins any more
	if g.wire != nil {
		g.wire.usual.CloseIdleConnections()
	}
}

// Close ends the gateway: connections are closed, costs are recorded, and the folder is
// removed. Tally is complete afterwards.
func (g *Gateway) Close() error {
	g.stop()
	errs := []error{g.meters.close()}
	if g.around != nil {
		errs = append(errs, g.around.close())
	}
	return errors.Join(errs...)
}

// Tally is what became of the calls so far.
func (g *Gateway) Tally() Tally { return g.tally.read() }
