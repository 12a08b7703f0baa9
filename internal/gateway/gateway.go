package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// StandIns has, by secret, the text that the command has instead: see [standIns].
	StandIns map[string]string
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
	// Observe is set to note calls instead of metering them: then nothing is charged.
	Observe *Observation
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
	standIns    standIns
	meters      *meters
	tally       *tally
	wire        *wire
	authority   *authority
	around      *surroundings
	token       string
	charged     *lru.Cache[string, struct{}] // ids of charges that the program made
	handshakes  chan struct{}                // has one for each that is under way
	busy        sync.RWMutex                 // a request holds it for reading, Close for writing

	ctx     context.Context // ends with the gateway
	cancel  context.CancelFunc
	stop    func()       // ends all requests, once
	server  *http.Server // of programs that ask the proxy, and of connections that are opened
	opened  handed
	running sync.WaitGroup
}

// Start starts a gateway. The error says what to mend.
func Start(ctx context.Context, o Options) (*Gateway, error) {
	tunnels := o.Tunnels
	if o.Observe != nil {
		tunnels = nil
	}
	owners, err := newOwners(o.Config.Upstreams, tunnels)
	if err == nil && o.Observe != nil {
		err = owners.observe(o.Observe, o.Tunnels)
	}
	if err != nil {
		return nil, err
	}
	if len(owners.places) == 0 {
		return nil, fmt.Errorf("%s names no host to meter: give an operation a match, or an upstream hosts = [\"…\"]", o.Config.File)
	}
	g := &Gateway{options: o, owners: owners, tally: newTally(), token: rand.Text(), handshakes: make(chan struct{}, mostHandshakes)}
	g.charged, _ = lru.New[string, struct{}](mostCharged) // fails for sizes below 1 alone
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.stop = sync.OnceFunc(g.stopServing)
	g.opened = handed{make(chan net.Conn), make(chan struct{})}
	g.server = &http.Server{
		ConnContext: targetIn, BaseContext: func(net.Listener) context.Context { return g.ctx },
		ReadHeaderTimeout: time.Minute, IdleTimeout: 10 * time.Minute, MaxHeaderBytes: 1 << 20,
		DisableGeneralOptionsHandler: true, ConnState: g.tally.state,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // mostly of programs that went away
	}
	g.credentials = newCredentials(o.Config.Upstreams, o.Budgets, o.Secret, o.Say)
	g.standIns = newStandIns(o, g.credentials)
	g.meters = &meters{gateway: g, byName: map[string]*meter{}}
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
	front := &front{Gateway: g, inner: newHandler(g)}
	g.server.Handler = front
	listeners := []net.Listener{proxy, g.opened}
	if canTell(g.ctx, proxy) {
		// Not 127.0.0.1, where a program may have a server of its own: the hook for Python knows the
		// listener by its IP where a library hides the port.
		l, err := g.listener(fmt.Sprintf("127.81.%d.%d:0", mathrand.IntN(256), 1+mathrand.IntN(254)))
		if err != nil {
			return err
		}
		around.direct = l.Addr().String()
		listeners = append(listeners, direct{l, front})
	}
	if g.around, err = surround(around); err != nil {
		return err
	}
	for _, text := range g.around.said {
		g.options.Say(text)
	}
	g.wire = newWire(g.around.roots, g.around.upstreamProxy)
	for _, l := range listeners {
		g.running.Go(func() { _ = g.server.Serve(l) }) // it ends with Close
	}
	return nil
}

func (g *Gateway) listener(address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(g.ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on this machine for the command: %w", err)
	}
	g.server.RegisterOnShutdown(func() { closeAll(l) })
	return l, nil
}

// targetIn is the context of a connection's requests: of one that was handed over, with its target.
func targetIn(ctx context.Context, conn net.Conn) context.Context {
	if opened, ok := conn.(*tls.Conn); ok {
		conn = opened.NetConn()
	}
	if p, ok := conn.(*peeked); ok {
		return context.WithValue(ctx, targetKey{}, p.target)
	}
	return ctx
}

// handed is a listener of connections that something else accepted.
type handed struct {
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (h handed) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The server calls it once.
func (h handed) Close() error {
	close(h.closed)
	return nil
}

// Addr implements net.Listener.
func (handed) Addr() net.Addr { return &net.TCPAddr{} }

// direct is the listener that needs no token: connections of the same user that begin with TLS
// are for the server that they name, and others ask the proxy.
type direct struct {
	net.Listener
	front *front
}

// Accept implements net.Listener. It returns no connection, since which server has it shows only
// once the program speaks, but errors: after some of them the server goes on.
func (d direct) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		d.front.running.Go(func() { d.front.directly(conn) })
	}
}

func (f *front) directly(conn net.Conn) {
	if !isOurs(conn.RemoteAddr(), conn.LocalAddr()) {
		closeAll(conn)
		return
	}
	p, says, name, err := peek(f.ctx, conn, bufio.NewReader(conn))
	switch {
	case err == nil && says == speaksTLS && f.owners.opens(name, 443):
		t, _ := targetAt("https", name)
		f.serveTLS(p, name, t)
	case err == nil && says == speaksHTTP:
		f.hand(p) // without a target
	default:
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
	_ = g.server.Shutdown(ctx) // what takes longer is cut
	for range mostHandshakes {
		select {
		case g.handshakes <- struct{}{}: // none begins any more
		case <-ctx.Done():
		}
	}
	g.cancel()
	_ = g.server.Close() // as above
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

// Tally is what became of the calls. It is read when no call is under way.
func (g *Gateway) Tally() Tally {
	g.tally.mu.Lock()
	defer g.tally.mu.Unlock()
	t := g.tally.t
	t.Broken = maps.Clone(t.Broken)
	for host, n := range g.tally.without {
		if n > 0 {
			t.Broken[host] += n
		}
	}
	return t
}
