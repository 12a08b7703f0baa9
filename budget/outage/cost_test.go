package outage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// hung is far beyond what any call may take: a slow machine is no fault here,
// and the times themselves are logged.
const hung = 5 * time.Minute

// outages are the ways in which a Redis may be out of reach; each begins one on a
// server and gives what ends it.
var outages = map[string]func(*testing.T, *redistest.Server, *redistest.Proxy) (end func()){
	"refused": func(t *testing.T, s *redistest.Server, p *redistest.Proxy) func() {
		s.Kill()
		return func() {
			if !s.Start() {
				t.Fatal("the server does not start again")
			}
		}
	},
	"black-holed": func(t *testing.T, s *redistest.Server, p *redistest.Proxy) func() {
		hole, err := net.Listen("tcp", "127.0.0.1:0") // connections are made and nothing answers
		must.Do(t, err)
		t.Cleanup(func() { _ = hole.Close() })
		p.Lead(hole.Addr().String())
		return func() { p.Lead(s.Addr) }
	},
	"stopped": func(_ *testing.T, s *redistest.Server, _ *redistest.Proxy) func() {
		s.Signal(syscall.SIGSTOP)
		return func() { s.Signal(syscall.SIGCONT) }
	},
	"busy": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) func() {
		client, admin := s.Client(), s.Client()
		t.Cleanup(func() { _, _ = client.Close(), admin.Close() })
		must.Do(t, admin.ConfigSet(t.Context(), "busy-reply-threshold", "100").Err())
		go client.Eval(context.Background(), "while true do end", nil)
		redistest.Await(t, "the server is busy", func() bool { return admin.Ping(t.Context()).Err() != nil })
		return func() {
			redistest.Await(t, "the script ends", func() bool {
				_ = admin.ScriptKill(t.Context()).Err()
				return admin.Ping(t.Context()).Err() == nil
			})
		}
	},
}

// A decision takes no longer than its timeout, and no time once the breaker is
// open; the store is asked again when it is back.
func TestOutageCosts(t *testing.T) {
	t.Parallel()
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr, 1)
			url := "redis://" + proxy.Addr
			if name == "refused" { // by the system, not by a proxy
				url = server.URL(0)
			}
			w := newWorld(t)
			b, _ := redisHost(t, url, t.TempDir(), w.spec, outage.Options{Allowance: 20, Hosts: 2, Interval: interval})
			w.back(b) // the first call may take too long on a machine under load
			end := begin(t, server, proxy)
			costs(t, w, b, name)
			end()
			began := time.Now()
			w.back(b)
			t.Logf("%s: noticed that the store is back after %s, of intervals of %s", name, time.Since(began), interval)
		})
	}
}

// nameServer is where names are asked for, when it is not empty.
var nameServer atomic.Value

// resolver asks it. It is set before there is anything else to use it.
func resolver() *net.Resolver {
	nameServer.Store("")
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if at := nameServer.Load().(string); at != "" {
			network, address = "udp", at
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

// A name service that does not answer is a store out of reach.
func TestSlowNames(t *testing.T) { // not in parallel: all names are asked for there
	silent := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer func() { _ = silent.Close() }()
	nameServer.Store(silent.LocalAddr().String())
	defer nameServer.Store("")
	w := newWorld(t)
	b, _ := redisHost(t, "redis://redis.example:6379", t.TempDir(), w.spec, outage.Options{Allowance: 20, Hosts: 2, Interval: interval})
	costs(t, w, b, "slow names")
	must.Do(t, b.Close()) // while the resolver is this one
}

// costs has calls decided without the store and logs what they took.
func costs(t *testing.T, w *world, b *budget.Budget, name string) {
	t.Helper()
	took := func(operation string) time.Duration {
		began := time.Now()
		r, err := w.charge(b, operation, "")
		for operation == "list" && errors.Is(err, driver.ErrUnavailable) && time.Since(began) < hung { // on a busy machine the call's time may run out
			r, err = w.charge(b, operation, "")
		}
		d := time.Since(began)
		if operation == "safe" && !errors.Is(err, driver.ErrUnavailable) || operation == "list" && (err != nil || r.Source != budget.SourceAllowance) {
			t.Fatalf("%s: %s: %+v, %v", name, operation, r, err)
		}
		if d > hung {
			t.Fatalf("%s: a decision took %s", name, d)
		}
		return d
	}
	first := took("safe")
	took("list") // opens the allowance's ledger
	var closed, open []time.Duration
	for range 200 {
		closed = append(closed, took("safe"))
	}
	for range 15 {
		open = append(open, took("list"))
	}
	slices.Sort(closed)
	slices.Sort(open)
	t.Logf("%s: the first call took %s of %s; then a closed one %s (p50) %s (p99), an open one %s (p50) %s (max)", name, first.Round(time.Millisecond),
		redisstore.DefaultTimeout, closed[100], closed[197], open[7], open[14])
}

// clockOfHosts is the hosts' clock from here on, which stands until it is moved.
func (w *world) clockOfHosts() *atomic.Int64 {
	var at atomic.Int64
	at.Store(time.Now().UnixMicro())
	w.clocks = &sqlitestore.Clocks{
		Wall: at.Load,
		Boot: func() (string, int64, error) { return "boot", at.Load(), nil },
	}
	return &at
}

// The processes of a host probe the store once an interval, all together, and
// know from each other that it is away and that it is back.
func TestOneProbeAnInterval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.clockOfHosts()
	dir := t.TempDir()
	processes := []*budget.Budget{w.host(dir), w.host(dir), w.host(dir)}
	w.store.gone.Store(true)
	must.Is(t, check.Err(w.charge(processes[0], "safe", "")), driver.ErrUnavailable)
	must.Equal(t, w.store.asked.Load(), 1, "asked … times by one call")
	// all has each process make some calls at once, and is how many were granted.
	all := func() int64 {
		var group sync.WaitGroup
		var granted atomic.Int64
		for _, b := range processes {
			for range 4 {
				group.Go(func() {
					for range 3 {
						switch _, err := w.charge(b, "safe", ""); {
						case err == nil:
							granted.Add(1)
						case !errors.Is(err, driver.ErrUnavailable):
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		return granted.Load()
	}
	for i := range 10 {
		before := w.store.asked.Load()
		at.Add(interval.Microseconds())
		all()
		redistest.Await(t, "the probe of an interval", func() bool { return w.store.asked.Load() > before })
		all()
		must.Equal(t, w.store.asked.Load()-before, 1, "asked … times in interval", i)
	}
	// A process that has just begun knows it too, and does not ask.
	asked := w.store.asked.Load()
	for i := range 5 {
		short := w.host(dir)
		must.Is(t, check.Err(w.charge(short, "safe", fmt.Sprint(i))), driver.ErrUnavailable)
		_ = short.Close()
	}
	must.Equal(t, w.store.asked.Load()-asked, 0, "five short-lived processes asked … times")
	// Back: all know it from the next probe on.
	w.store.gone.Store(false)
	at.Add(interval.Microseconds())
	granted := all()
	redistest.Await(t, "all are granted again", func() bool {
		more := all()
		granted += more
		return more == 3*4*3
	})
	if probes := w.store.asked.Load() - asked - granted; probes > 2 {
		t.Fatalf("it took %d probes", probes)
	}
}

// Calls that come more rarely than the store is probed ask it themselves: nothing
// else would find out that it is back.
func TestRareCallsAskThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.clockOfHosts()
	dir := t.TempDir()
	b := w.host(dir)
	w.store.gone.Store(true)
	must.Is(t, check.Err(w.charge(b, "safe", "")), driver.ErrUnavailable)
	w.store.gone.Store(false)
	must.Is(t, check.Err(w.charge(w.host(dir), "safe", "")), driver.ErrUnavailable, "the next call asked the store by itself")
	at.Add((3 * interval).Microseconds())
	must.Get(w.charge(w.host(dir), "safe", ""))(t)
}

// The caller's impatience is no outage.
func TestImpatienceOpensNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		b := w.host(t.TempDir())
		w.store.away.Store(true)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), w.spec.Timeout/20)
			if r, err := b.Charge(ctx, budget.Call{Operation: "list"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%+v, %v", r, err)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			go cancel()
			if r, err := b.Charge(ctx, budget.Call{Operation: "list"}); !errors.Is(err, context.Canceled) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		w.store.away.Store(false)
		w.charged(b, "a", budget.SourceStore)
	})
}
