package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// DefaultInterval is how often a host probes a store that is out of reach.
const DefaultInterval = 500 * time.Millisecond

// Options say what a host may do on its own.
type Options struct {
	// Dir is the host's directory, made with mode 0700 when it is needed. Without it,
	// nothing is remembered and no call is granted while the store is out of reach.
	Dir string
	// Allowance is what the host may spend per budget while the store is out of
	// reach, in units; 0: nothing.
	Allowance int64
	// Hosts is how many hosts share the store, 1 or more; 0 means 1.
	Hosts int64
	// Timeout is the store's own, which bounds one of its calls.
	Timeout time.Duration
	// PerBudget: budgets are on servers that fail one by one, so each budget has its
	// own breaker.
	PerBudget bool
	// Interval is how often the store is probed while it is out of reach;
	// DefaultInterval when 0.
	Interval time.Duration
	// Clocks replace the machine's clocks in tests with fake time; nil: the machine's
	// own.
	Clocks *sqlitestore.Clocks
	// Log receives outages, recoveries and losses; nil: nothing is logged.
	Log *slog.Logger
}

// Store is a driver.Store that outlives outages of the one it wraps. It is safe
// for concurrent use by goroutines, and its directory by processes.
type Store struct {
	inner   driver.Store
	o       Options
	log     *slog.Logger
	wall    func() int64 // µs
	boot    func() (id string, since int64, err error)
	journal journal
	memory  memory
	far     distant // inner, if it is one
	queued  queueing

	mu        sync.Mutex // guards all below
	breakers  map[string]*breaker
	local     *sqlitestore.Store
	hostID    string // the directory's id, once it was read
	hostTried int64  // when host last tried to read it, µs by the wall clock; 0: never
	closed    bool
	probes    sync.WaitGroup
}

var _ driver.Store = (*Store)(nil)

// New wraps a store, which the result closes.
func New(inner driver.Store, o Options) *Store {
	o.Hosts, o.Interval = max(o.Hosts, 1), cmp.Or(o.Interval, DefaultInterval)
	s := &Store{inner: inner, o: o, log: o.Log, wall: wallClock, boot: sqlitestore.BootClock}
	if o.Clocks != nil {
		s.wall, s.boot = o.Clocks.Wall, o.Clocks.Boot
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.far, _ = inner.(distant)
	s.queued.times = timesOnLinux
	s.breakers = map[string]*breaker{}
	s.journal = journal{dir: o.Dir}
	s.memory = memory{dir: o.Dir, boot: s.bootClock, wall: s.wall, warn: s.forgetful, damaged: s.damaged, budgets: map[string]*remembered{}}
	return s
}

// bootClock reads the boot clock, which nobody can set.
func (s *Store) bootClock() (id string, since int64, err error) { return s.boot() }

// Close waits for a probe under way, writes down what is remembered, and closes
// the store.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	local := s.local
	s.local = nil
	s.mu.Unlock()
	if was {
		return nil
	}
	s.probes.Wait()
	s.confirm()
	s.memory.close()
	var errs []error
	if local != nil {
		errs = append(errs, local.Close())
	}
	return errors.Join(append(errs, s.inner.Close())...)
}

// confirm asks the store, within its timeout, for the marks that are in doubt as a process
// ends. One that asked little is spared that: the next one asks.
func (s *Store) confirm() {
	if _, out := s.OutOfReach(); out {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), cmp.Or(s.o.Timeout, time.Second), driver.ErrUnavailable)
	defer cancel()
	for _, name := range s.memory.busy() {
		s.memory.refresh(name)
		mark, others := s.memory.mark(name)
		if len(others) == 0 || ctx.Err() != nil {
			continue
		}
		look := driver.Look{Budget: name, Now: s.wall(), Limits: s.memory.asks(name), Mark: mark, Others: others}
		if view, err := s.lookWith(ctx, look); err == nil {
			s.memory.confirmed(look, view.Mark)
		}
	}
}

// OutOfReach reports whether the host considers the store out of reach, and since when
// by the wall clock.
func (s *Store) OutOfReach() (since time.Time, out bool) {
	for _, b := range s.allBreakers() {
		if state, open := b.read(); open {
			return state.Since, true
		}
	}
	return time.Time{}, false
}

// unreached reports whether an error means that the store did not answer, rather than that
// the caller gave up.
func unreached(ctx context.Context, err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled), impatient(ctx):
		return false
	}
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// impatient reports whether the caller's own context has ended. A context that ended
// because the store took too long has ErrUnavailable as its cause.
func impatient(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), driver.ErrUnavailable)
}

// reach asks the store unless the breaker forbids it, and passes the outcome to the
// breaker. If asked is false, the store was not asked and the error is ErrUnavailable.
func (s *Store) reach(ctx context.Context, name string, ask func(context.Context) error) (asked bool, err error) {
	return s.unlessAway(ctx, name, func() error { return s.insist(ctx, name, ask) })
}

// reachSlowly is reach for a question of many parts, each of which the store bounds: by what all tries of
// a call take, as it charges nothing.
func (s *Store) reachSlowly(ctx context.Context, name string, ask func(context.Context) error) error {
	if s.far != nil {
		ctx = s.far.WithTimeout(ctx, mostTimeouts*s.o.Timeout)
	}
	_, err := s.unlessAway(ctx, name, func() error { return s.once(ctx, name, ask) })
	return err
}

func (s *Store) unlessAway(ctx context.Context, name string, ask func() error) (asked bool, err error) {
	switch probe := s.breaker(name).allow(); probe {
	case keepAway:
		if err := s.away(name); err != nil {
			return false, err
		}
	case probeBeside:
		if err := s.away(name); err != nil && s.probeBeside(ctx, name) {
			return false, err
		}
	}
	return true, ask()
}

// away returns why the store is not asked; nil if another process has closed the breaker
// since.
func (s *Store) away(name string) error {
	state, open := s.breaker(name).read()
	if !open {
		return nil
	}
	return fmt.Errorf("%w since %s; asked once in %s until it answers: %s", driver.ErrUnavailable, state.Since.UTC().Format(time.RFC3339), s.o.Interval, state.Cause)
}

// answered opens or closes the breaker by the outcome of a try. A try whose context ended before half
// the store's timeout shows nothing, nor does one that is excused.
func (s *Store) answered(ctx context.Context, name string, err error, took time.Duration, excused bool) {
	switch {
	case unreached(ctx, err) && !excused && (ctx.Err() == nil || took >= s.o.Timeout/2):
		if s.breaker(name).open(err) {
			s.log.Warn("the store is out of reach", "budget", name, "error", err)
		}
	case err == nil || !unreached(ctx, err) && ctx.Err() == nil:
		if s.breaker(name).shut() {
			s.log.Info("the store is within reach again", "budget", name)
		}
	}
}

// probeBeside probes the store in a goroutine, so that no caller waits for the probe. It
// returns false if the Store is closed.
func (s *Store) probeBeside(ctx context.Context, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.probes.Add(1)
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer s.probes.Done()
		ctx, cancel := context.WithTimeoutCause(ctx, max(s.o.Timeout, s.Patience()), driver.ErrUnavailable)
		defer cancel()
		_ = s.insist(ctx, name, func(ctx context.Context) error {
			_, err := s.inner.Look(ctx, driver.Look{Budget: name, Now: s.wall()})
			return err
		})
	}()
	return true
}

// DefaultDir is the name of the directory beside a configuration in which a host keeps
// its files. A configuration's folder that no longer exists is not created again: that
// would hide the problem.
const DefaultDir = ".quotactl"

const adviceDir = "make it writable for this user, or name another with state_dir"

// makeDir creates a directory for the host's files.
func makeDir(path ...string) (string, error) {
	dir := filepath.Join(path...)
	if at := strings.LastIndex(dir, string(filepath.Separator)+DefaultDir+string(filepath.Separator)); at > 0 {
		before := dir[:at]
		if _, err := os.Stat(before); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s, the configuration's folder, in which the host keeps its files, no longer exists: restore it, or start the program with a configuration that exists", before)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the host's directory: %w; %s", err, cmp.Or(driver.Shortage(dir, err), adviceDir))
	}
	return dir, nil
}
