package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"
)

// OpenWithClock opens a store whose clock is the one given, in µs: the machine's
// boot and its clocks have no part in it.
func OpenWithClock(ctx context.Context, path string, o Options, clock func() int64) (*Store, error) {
	return open(ctx, path, o, clocks{only: clock})
}

// OpenOnBoot opens a store on a machine with these clocks, in µs.
func OpenOnBoot(ctx context.Context, path string, o Options, id string, boot, wall func() int64) (*Store, error) {
	o.Clocks = &Clocks{Wall: wall, Boot: func() (string, int64, error) { return id, boot(), nil }}
	return Open(ctx, path, o)
}

// SetSteps makes transactions expire, build and walk so few rows, and prune so
// few, that calls take several.
func SetSteps(s *Store, steps, pruning int) { s.steps, s.pruning = steps, pruning }

// SetPaused has a function called between the transactions of one call; nil: none.
func SetPaused(s *Store, paused func()) {
	if s.paused = nil; paused != nil {
		s.paused = func(context.Context) { paused() }
	}
}

// SetPausedIn is SetPaused with what bounds the transactions.
func SetPausedIn(s *Store, paused func(context.Context)) { s.paused = paused }

// SetClosing has a function called before a decision's last look at the time.
func SetClosing(s *Store, closing func()) { s.closing = closing }

// SetTimed has a function called with how long each transaction that writes took,
// without its commit.
func SetTimed(s *Store, timed func(time.Duration)) { s.timed = timed }

// SetTimeout bounds later calls.
func SetTimeout(s *Store, timeout time.Duration) { s.timeout = timeout }

// LieOn has directories lie on a network file system of this name; empty: on none.
// The function ends that.
func LieOn(kind string) (end func()) {
	was := kindOf
	kindOf = func(string) (string, error) { return kind, nil }
	return func() { kindOf = was }
}

// NetworkKind is the name of the network file system a directory lies on.
func NetworkKind(dir string) (string, error) { return networkKind(dir) }

// Fault is an error of SQLite's with a result code, and with what the operating system refused.
func Fault(code int, errno unix.Errno) error {
	e := &sqliteError{code: code, text: fmt.Sprintf("(%d)", code)}
	if errno != 0 {
		e.system = errno
	} else if code&0xff == sqlite3.SQLITE_FULL {
		e.system = (&handle{}).refused(sqlite3.SQLITE_FULL)
	}
	return e
}

// Explain is what a store at a path says of an error.
func Explain(path string, err error) error {
	return (&Store{path: path}).explain(context.Background(), "charge", err)
}

// Pragma asks the writing connection.
func Pragma(s *Store, name string) string {
	value := ""
	if _, err := s.writer.first("PRAGMA "+name, nil, &value); err != nil {
		return err.Error()
	}
	return value
}

// TakeLock takes the lock by which processes take turns, and keeps it.
func TakeLock(ctx context.Context, s *Store) error { return s.lock.take(ctx) }

// DropLock ends that.
func DropLock(s *Store) { s.lock.drop() }

// EndSlice makes the store wait behind others that wait.
func EndSlice(s *Store) {
	s.lock.mu.Lock()
	s.lock.since, s.lock.left = time.Time{}, time.Time{}
	s.lock.mu.Unlock()
	s.lock.letGo()
}

// Holder says who has the lock, or had it last.
func Holder(s *Store) string { return s.lock.holder() }

// WaitForLock waits for the lock by which processes take turns, and keeps it.
func WaitForLock(ctx context.Context, s *Store) error { return s.lock.wait(ctx) }

// Plans are the query plans of the statements on history that the writing connection has
// prepared, by statement.
func Plans(s *Store) (map[string][]string, error) {
	plans := map[string][]string{}
	for _, query := range slices.Collect(maps.Keys(s.writer.stmts)) {
		if !strings.Contains(query, "history") && !strings.Contains(query, "series") {
			continue
		}
		var id, parent, unused int64
		var step string
		err := s.writer.each("EXPLAIN QUERY PLAN "+query, nil, func() {
			plans[query] = append(plans[query], step)
		}, &id, &parent, &unused, &step)
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// SetSums makes sums of so few entries.
func SetSums(s *Store, perSum int) { s.perSum = perSum }

// CheckSums holds the sums against the entries, and is how many there are.
func CheckSums(ctx context.Context, s *Store) (n int, err error) {
	err = s.read(ctx, func(c *conn) error {
		return errors.Join(checkSums(ctx, c), countEntries(ctx, c), errOf(c.first("SELECT count(*) FROM entry_sum", nil, &n)))
	})
	return n, err
}

// WriteOut moves what waits in a budget's row to the tables.
func WriteOut(s *Store, name string) error {
	return s.write(context.Background(), func(c *conn) error {
		l, err := s.ledger(c, name)
		if err != nil {
			return err
		}
		return errors.Join(l.writeTotals(), l.addWaiting(), l.write())
	})
}
