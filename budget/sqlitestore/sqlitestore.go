// Package sqlitestore keeps ledgers and the jobs' documents in one SQLite file that the
// processes of one machine share. It needs no server: [Open] creates the file if it is
// missing, and acknowledged charges survive the death of any process.
//
// Fetch jobs do not call it: they charge through package budget. Besides [driver.Store]
// it is a [driver.JobStore], which package jobs uses.
//
// Beside the file are SQLite's PATH-wal and PATH-shm, and PATH.lock and PATH.next, by
// which the processes take turns. While a process uses the file, nothing but SQLite may
// open, copy or remove it and the first two. Only the owner can read and write them,
// whatever the umask.
package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/quotactl/quotactl/budget/driver"
)

// DefaultTimeout bounds a call when Options say nothing.
const DefaultTimeout = 2 * time.Second

// Options change how a Store works. The zero value means the defaults.
type Options struct {
	// Timeout bounds one call, its waits for other processes included, where
	// the context has no earlier deadline; DefaultTimeout when 0.
	Timeout time.Duration
	// History is how long the spend by the hour is kept; 90 days when 0, none when below 0.
	History time.Duration
	// NoHistory names upstreams of whose budgets no spend by the hour is kept, with a space between.
	NoHistory string
	// Clocks replace the machine's clocks in tests with fake time; nil: the machine's
	// own.
	Clocks *Clocks
}

// Clocks are a machine's clocks, in µs.
type Clocks struct {
	Wall func() int64 // since the Unix epoch; it may be set
	// Boot is the time since the boot, time asleep included, which nobody can set,
	// and the boot's id.
	Boot func() (id string, since int64, err error)
}

// Store is a driver.Store on a file. It is safe for concurrent use by
// goroutines, and the file by processes of one machine. Use Open.
type Store struct {
	path        string
	timeout     time.Duration
	clocks      clocks
	steps       int                       // the most rows that a transaction expires, builds or walks
	historyKept func(budget string) int64 // µs; below 0: there is no history
	pruning     int                       // the most rows that a transaction prunes
	perSum      int                       // how many entries a sum is made of
	paused      func(context.Context)     // called between the transactions of one call, unless nil
	timed       func(time.Duration)       // called with how long a transaction took before its commit, unless nil
	closing     func()                    // called before a transaction's last check of the time, unless nil

	lock   *fileLock
	turn   chan struct{} // one token; its holder may write
	looks  chan struct{} // one token; its holder may use the reading connection
	wal    os.FileInfo   // the opened file's log, once known; owned by the holder of turn
	writer *conn         // owned by the holder of turn
	reader *conn         // owned by the holder of looks

	cache     *simplelru.LRU[string, *ledger] // as last committed by this process; owned by the holder of turn
	epoch     int64                           // grows when another connection has changed the file; likewise
	committed uint32                          // the file's version for writer after its last commit; likewise
	checked   bool                            // there was one, and nothing failed since; likewise

	mu     sync.Mutex  // guards all below
	file   os.FileInfo // the opened file
	swept  int64       // when the process last looked for idle budgets
	closed bool
}

var (
	_ driver.Store    = (*Store)(nil)
	_ driver.JobStore = (*Store)(nil)
)

// Open opens the file at path, or creates it. The directory must exist, on a file
// system of this machine. Errors: ErrStoreConfig when the file cannot serve (another
// program's, a newer quotactl's, not writable, on a network), ErrUnavailable when it
// did not answer in time, and the context's error. A file of an older quotactl is converted,
// however long that takes until the context ends: about 15 seconds for a million charges.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	clocks, err := machineClocks(o.Clocks)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: the machine's boot clock cannot be read (%w); run it on a machine where it can be", path, driver.ErrStoreConfig, err)
	}
	return open(ctx, path, o, clocks)
}

// maxSteps bounds the rows that one transaction expires, builds or walks, so that others
// can work in between.
const maxSteps = 2000

// maxPruned bounds the rows that one transaction prunes.
const maxPruned = 256

func open(ctx context.Context, path string, o Options, clocks clocks) (*Store, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	full, err := filepath.Abs(path)
	if err != nil || path == "" {
		return nil, fmt.Errorf("open store %q: %w: give the path of a file", path, driver.ErrStoreConfig)
	}
	cache, err := simplelru.NewLRU[string, *ledger](maxCached, nil)
	if err != nil {
		return nil, fmt.Errorf("open store %q: %w", path, err)
	}
	s := &Store{
		path: full, timeout: o.Timeout, clocks: clocks, steps: maxSteps, pruning: maxPruned, perSum: perSum,
		turn: make(chan struct{}, 1), looks: make(chan struct{}, 1),
		cache: cache, historyKept: func(name string) int64 { return driver.KeptOf(name, o.History, o.NoHistory) },
	}
	bounded, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := s.start(bounded, ctx); err != nil {
		_ = s.Close() // nothing was written, and err says more
		return nil, s.explain(ctx, "open", err)
	}
	return s, nil
}

// start checks the place, prepares the file and opens both connections. To convert an older
// file may take until patient ends.
func (s *Store) start(ctx, patient context.Context) error {
	if err := checkFileSystem(filepath.Dir(s.path)); err != nil {
		return err
	}
	lock, err := openLock(s.path)
	if err != nil {
		return err
	}
	s.lock = lock
	if s.writer, err = connect(ctx, s.path, s.timeout, false); err != nil {
		return err
	}
	if !isPrepared(s.writer) {
		if err := s.prepare(ctx, patient); err != nil {
			return err
		}
	}
	if err := s.opened(); err != nil {
		return err
	}
	s.reader, err = connect(patient, s.path, s.timeout, true)
	return err
}

// prepare creates or migrates the file's tables while no other process does. A process that
// was killed while preparing may hold SQLite's locks for a moment longer than path.lock,
// and SQLite does not wait for them before it changes the journal mode.
func (s *Store) prepare(ctx, patient context.Context) error {
	if err := s.lock.poll(ctx); err != nil {
		return err
	}
	defer s.lock.drop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := prepareFile(ctx, patient, s.writer)
		if !isBusy(err) {
			return err
		}
		if cause := wait(ctx, pause); cause != nil {
			return cause
		}
	}
}

// Change implements driver.Store.
func (s *Store) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	changed, err := s.change(bounded, change)
	if err != nil {
		return nil, s.explain(ctx, change.Doing(), err)
	}
	return changed, nil
}

func (s *Store) change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	switch c := change.(type) {
	case driver.Recovery:
		return s.recover(ctx, c)
	case driver.Report:
		return s.report(ctx, c)
	case driver.Lock:
		return s.lockBudget(ctx, c)
	case driver.Unlock:
		return s.unlockBudget(ctx, c)
	case driver.HoldChange:
		return s.changeHold(ctx, c)
	case driver.PlanChange:
		return s.changePlan(ctx, c)
	case driver.Import:
		return s.importRows(ctx, c)
	case driver.Reset:
		return driver.Done{}, s.forget(ctx, c.Budget, true)
	case driver.AcceptClock:
		return driver.Done{}, s.acceptClock(ctx, c.Budget)
	case driver.Refusals:
		return driver.Done{}, s.countRefusals(ctx, c)
	}
	return nil, driver.Unknown(change)
}

// Budgets implements driver.Store.
func (s *Store) Budgets(ctx context.Context, upstream string, most int) (names []string, err error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	var name string
	err = s.read(bounded, func(c *conn) error {
		return c.each("SELECT name FROM budget WHERE name >= ? AND name < ? LIMIT ?", []any{upstream + "/", upstream + "0", most}, // 0 comes after /
			func() { names = append(names, name) }, &name)
	})
	if err != nil {
		return nil, s.explain(ctx, "list the budgets of "+upstream, err)
	}
	return names, nil
}

// Close waits for the call under way and closes the file. Later calls fail with
// ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.turn <- struct{}{}
	s.looks <- struct{}{}
	defer func() { <-s.turn; <-s.looks }()
	// Close the writer after the reader: the last connection writes the log back.
	errs := []error{s.reader.close(), s.writer.close(), s.lock.close()}
	s.reader, s.writer, s.lock = nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// isClosed reports whether Close was called.
func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
