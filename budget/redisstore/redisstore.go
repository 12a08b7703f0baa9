// Package redisstore keeps ledgers in Redis or Valkey, for many machines. [Open] takes
// a URL; each decision on a call is made in one atomic script run, mostly together with
// those that wait, and all keys of a budget have one hash tag, so that they are on one shard.
//
// The server's clock decides. The store retries by itself, with the same ids, until the
// call's deadline; the client library's retries are off.
package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/lua"
)

// DefaultTimeout bounds one call, unless Options or the context does.
const DefaultTimeout = 250 * time.Millisecond

// DefaultPrefix is the first part of all keys, unless Options has another.
const DefaultPrefix = "quotactl"

// Options are settings that a URL does not have. The zero value means the defaults.
type Options struct {
	// Prefix is the first part of every key, a name as driver.ValidName has it; "" is DefaultPrefix.
	Prefix string
	// Timeout bounds one call; before the first answer, one may take eight. Connecting has 1 s of its own.
	Timeout time.Duration
	// History is how long the spend by the hour is kept; 90 days when 0, none when below 0.
	History time.Duration
	// NoHistory names upstreams of whose budgets no spend by the hour is kept, with a space between.
	NoHistory string
	// Password is used if the URL has none.
	Password string
}

// Store is a driver.Store and a driver.JobStore on Redis. Use Open.
type Store struct {
	client  client
	follow  *follower                           // nil if no replica can become the master
	options func(address string) *redis.Options // for a server that the URL does not name
	prefix  string
	timeout time.Duration
	cluster bool
	scripts lua.Scripts
	// testClock, if set, is every script's last argument, for a clock snippet that reads
	// it; see export_test.go.
	testClock func() int64
	maxSteps  int
	keepFor   time.Duration // [Options.History]
	keepNone  string        // [Options.NoHistory]
	pace      *pace

	mu      sync.Mutex // guards all below
	ledgers map[string]*registry
	plans   map[string]*plans
	planned map[string]*plannedText
	clocks  map[string]*offset
	closed  bool
	tidying map[string]bool // ledgers that are being tidied

	tidied sync.WaitGroup
}

// maxSteps is how many entries one script run may read.
const maxSteps = 2000

// block is how many entries a block of lua/blocks.lua has: so few that one run reads those of
// several operations that are in none.
func (s *Store) block() int64 { return max(1, int64(s.maxSteps)/4) }

// Open makes a store from a URL, of one of these forms:
//
//	redis://[user[:password]@]host[:port][/db]      rediss:// the same with TLS
//	unix:///path/to/socket[?db=n]
//	redis+sentinel://host[:port],…/master-name[?db=n]
//	redis+cluster://host[:port],…
//	redis+ring://host[:port],…
//
// It does not connect; [Store.Ping] does. The error wraps budget.ErrStoreConfig
// and never holds a password.
func Open(_ context.Context, url string, o Options) (*Store, error) {
	return open(url, o, lua.Clock())
}

// quiet keeps the client library from printing to stderr what it also returns. The
// library's logger is global, so it is set once.
var quiet = sync.OnceFunc(func() { redis.SetLogger(&logging.VoidLogger{}) })

func open(url string, o Options, clock string) (*Store, error) {
	quiet()
	target, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if !driver.ValidName(o.Prefix) {
		return nil, fmt.Errorf("%w: store prefix %q: use letters, digits, '.', '_' and '-', at most 63", driver.ErrStoreConfig, o.Prefix)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if target.password == "" {
		target.password = o.Password
	}
	pace := &pace{}
	client, follow := target.client(o.Timeout, pace)
	return &Store{
		client: client, follow: follow, options: func(address string) *redis.Options { return target.options(o.Timeout, "tcp", address, pace) }, prefix: o.Prefix, timeout: o.Timeout, pace: pace, cluster: target.mode == cluster,
		scripts: lua.With(clock), maxSteps: maxSteps, keepFor: o.History, keepNone: o.NoHistory, ledgers: map[string]*registry{}, plans: map[string]*plans{}, planned: map[string]*plannedText{}, tidying: map[string]bool{}, clocks: map[string]*offset{},
	}, nil
}

// Ping reports whether scripts run on the server. It runs a read-only script, because
// the command PING may be denied. Errors as in driver.Store.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.runForClock(ctx, s.scripts.Probe, "ask the clock", []string{s.key("", "m")})
	return err
}

// Change implements driver.Store.
func (s *Store) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	switch c := change.(type) {
	case driver.Recovery:
		return s.recover(ctx, c)
	case driver.Report:
		return s.report(ctx, c)
	case driver.Lock:
		return s.lock(ctx, c)
	case driver.Unlock:
		return s.unlock(ctx, c)
	case driver.HoldChange:
		return s.changeHold(ctx, c)
	case driver.PlanChange:
		return s.changePlan(ctx, c)
	case driver.Import:
		return s.importRows(ctx, c)
	case driver.Reset:
		return driver.Done{}, s.reset(ctx, c.Budget)
	case driver.AcceptClock:
		return driver.Done{}, s.acceptClock(ctx, c.Budget)
	case driver.Refusals:
		return driver.Done{}, s.countRefusals(ctx, c)
	}
	return nil, driver.Unknown(change)
}

func (s *Store) acceptClock(ctx context.Context, name string) error {
	if err := s.convert(ctx, name); err != nil {
		return err
	}
	_, err := s.runForClock(ctx, s.scripts.Accept, "accept the clock for "+name, []string{s.key(name, "m"), s.key(name, "e")})
	if hasCode(err, "DAMAGED") {
		return s.damaged(name, "m is missing")
	}
	return err
}

// Close implements driver.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock() // what is waited for below needs it to end
	if closed {
		return nil
	}
	s.follow.stop()
	defer s.follow.wait() // closing the connections ends a look
	defer s.tidied.Wait() // likewise
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close the Redis store: %w", err)
	}
	return nil
}

// usualTrips is how many round trips a process's first call takes: one to connect, one to learn the
// server's clock and the ledger's operations, and one to decide.
const usualTrips = 3

// firstTimeouts is how many timeouts a call may take before the first answer, unless its caller bounds it.
const firstTimeouts = 8

// Distance is how far away the server is, as the shortest of the last answers, or connecting, has
// shown; 0 if nothing has. answers is how many answers the store has had.
func (s *Store) Distance() (near time.Duration, answers int64) {
	return time.Duration(s.pace.near.Load()), s.pace.answers.Load()
}

type timeoutKey struct{}

// WithTimeout returns a context in which a call takes as long as timeout, instead of [Options.Timeout].
func (s *Store) WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// begin bounds a call by the store's timeout, and what the distance adds to it. It fails if the store is closed or the
// context has ended.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if closed {
		return nil, nil, fmt.Errorf("ask Redis: %w", driver.ErrClosed)
	}
	near, answers := s.Distance()
	timeout, ok := ctx.Value(timeoutKey{}).(time.Duration)
	if !ok {
		timeout = s.timeout
		if answers == 0 && !s.cluster { // nothing shows yet how far away the server is
			timeout *= firstTimeouts
		}
	}
	timeout += usualTrips * near
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) <= timeout {
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, cancel, nil
}

// kept is how long the history of a budget is kept, µs; 0: there is none.
func (s *Store) kept(budget string) int64 {
	return max(0, driver.KeptOf(budget, s.keepFor, s.keepNone))
}

// key is one key of a budget.
func (s *Store) key(name, part string) string {
	return s.prefix + ":v1:{" + name + "}:" + part
}
