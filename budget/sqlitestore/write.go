package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// betweenSteps is the pause between two transactions of one call, for others to write.
const betweenSteps = 500 * time.Microsecond

// errRedo undoes a transaction in which a deadline passed. The caller runs it again.
var errRedo = errors.New("run the transaction again")

// errCommit: the commit failed, and whether it took effect is unknown.
var errCommit = errors.New("commit")

// bound bounds a call by the store's timeout. It returns a context that ends sooner
// unchanged: a derived one would end a moment later.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= s.timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// write runs step in one transaction. It waits for its turn until the context ends, and
// does not commit after that.
func (s *Store) write(ctx context.Context, step func(*conn) error) (err error) {
	if err := s.enter(ctx, s.turn); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	if s.isClosed() {
		return driver.ErrClosed
	}
	if err := s.lockInPlace(ctx); err != nil {
		return err
	}
	defer s.lock.drop()
	if s.writer == nil {
		if s.writer, err = connect(ctx, s.path, s.timeout, false); err != nil {
			return err
		}
	}
	if err = s.writer.begin(ctx, beginWriting); err == nil {
		err = s.disturbed()
	}
	if err == nil {
		began := time.Now()
		if err = step(s.writer); s.timed != nil {
			s.timed(time.Since(began))
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if err = s.writer.exec("COMMIT"); err != nil {
			err = fmt.Errorf("%w: %w", errCommit, err)
		}
	}
	if s.checked = false; err == nil {
		version, unknown := s.writer.version()
		s.committed, s.checked = version, unknown == nil
	}
	if err != nil {
		s.cache.Purge()
		s.writer = undo(s.writer)
	} else if s.wal == nil {
		s.wal, _ = os.Stat(s.path + walSuffix) // on an error nil, which is safe
	}
	return err
}

// disturbed notes whether another connection has changed the file since this one's last commit,
// and then refuses the file if a newer program has done so.
func (s *Store) disturbed() error {
	version, err := s.writer.version()
	if err != nil || s.checked && version == s.committed {
		return err
	}
	s.epoch++
	return checkVersion(s.writer)
}

// undo rolls back a transaction. If that fails, it closes the connection, which may be what
// failed, and returns nil.
func undo(c *conn) *conn {
	if err := c.exec("ROLLBACK"); err == nil {
		return c
	}
	_ = c.close() // the connection is useless, so its error is too
	return nil
}

// enter waits for the token of a connection.
func (s *Store) enter(ctx context.Context, token chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read runs step in a transaction that only reads. It waits for no writer.
func (s *Store) read(ctx context.Context, step func(*conn) error) (err error) {
	if !s.inPlace() {
		if err := s.write(ctx, func(*conn) error { return nil }); err != nil {
			return err
		}
	}
	if err := s.enter(ctx, s.looks); err != nil {
		return err
	}
	defer func() { <-s.looks }()
	if s.isClosed() {
		return driver.ErrClosed
	}
	if s.reader == nil {
		if s.reader, err = connect(ctx, s.path, s.timeout, true); err != nil {
			return err
		}
	}
	err = s.reader.read(ctx, step)
	s.reader = undo(s.reader) // nothing was written
	return err
}

// readAlone is read for long reads, bounded by the context alone. It uses its own
// connection, so that no other call of the store waits for it.
func (s *Store) readAlone(ctx context.Context, step func(*conn) error) error {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	if err := s.read(bounded, func(*conn) error { return nil }); err != nil { // checks that the file is in place and answers
		return err
	}
	c, err := connect(ctx, s.path, s.timeout, true)
	if err != nil {
		return err
	}
	return errors.Join(c.read(ctx, step), c.close())
}

// read begins a transaction that only reads, and runs step in it.
func (c *conn) read(ctx context.Context, step func(*conn) error) error {
	err := c.begin(ctx, beginReading)
	if err == nil {
		err = checkVersion(c)
	}
	if err == nil {
		err = step(c)
	}
	return err
}

// ledger reads a budget's ledger for writing, and caches it. A failed transaction clears the
// cache.
func (s *Store) ledger(c *conn, name string) (*ledger, error) {
	known, _ := s.cache.Get(name)
	if known != nil && known.b != 0 && known.seen == s.epoch {
		known.c = c
		return known, nil // nobody else has changed the file
	}
	l, err := readLedger(c, name, known)
	if err == nil && known == nil {
		err = l.checkNewest()
	}
	if err != nil {
		return nil, err
	}
	l.historyKept, l.perSum, l.seen = s.historyKept(name), s.perSum, s.epoch
	s.cache.Add(name, l)
	return l, nil
}

// maxCached bounds the ledgers that a process caches.
const maxCached = 256

// pause lets others write between two transactions of one call.
func (s *Store) pause(ctx context.Context) error {
	if s.paused != nil {
		s.paused(ctx)
	}
	return wait(ctx, betweenSteps)
}
