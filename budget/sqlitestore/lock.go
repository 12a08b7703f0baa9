package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses between tries for a lock: growing from the first to the last.
const (
	firstPause = 200 * time.Microsecond
	lastPause  = time.Millisecond
)

// slice is how long a process may come back ahead of those that wait. Handing
// over costs a pause, so that handing over after each write would cost most of
// the rate.
const slice = 3 * time.Millisecond

// fileLock is the lock by which processes take turns to write. SQLite's own
// lock keeps the file right without it, but polls in a way that lets one
// process wait for seconds while others go on.
//
// It has files of its own: a process that opens and closes SQLite's files
// itself drops the locks that SQLite holds on them. There are two, since who
// leaves would else be back before any who waits looks again: only the holder of
// next waits for the lock, and who has had it for a slice has to get next first.
//
// One goroutine uses it at a time.
type fileLock struct {
	lock  *os.File
	next  *os.File
	since time.Time // when the slice began
}

// ownerOnly is the mode of the files that a store makes: who spent what is
// nobody else's business. Files that are there keep theirs, so that a person can
// share a store with a group, by changing the mode of all of its files.
const ownerOnly = 0o600

// openLock opens, or makes, path.lock and path.next.
func openLock(path string) (*fileLock, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, err
	}
	next, err := os.OpenFile(path+".next", os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &fileLock{lock: lock, next: next}, nil
}

// take waits for the lock until the context ends.
func (l *fileLock) take(ctx context.Context) error {
	if time.Since(l.since) < slice && ctx.Err() == nil && tryFile(l.lock) == nil {
		return nil
	}
	if err := takeFile(ctx, l.next); err != nil {
		return err
	}
	defer dropFile(l.next)
	err := takeFile(ctx, l.lock)
	l.since = time.Now()
	return err
}

// drop lets others in.
func (l *fileLock) drop() { dropFile(l.lock) }

func (l *fileLock) close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.lock.Close(), l.next.Close())
}

// takeFile waits for the lock on a file until the context ends.
func takeFile(ctx context.Context, file *os.File) error {
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for %s: %w", file.Name(), err)
		}
		err := tryFile(file)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if err := wait(ctx, pause/2+rand.N(pause/2)); err != nil { //nolint:gosec // spreading, not secrecy
			return fmt.Errorf("wait for %s: %w", file.Name(), err)
		}
	}
}

// tryFile takes the lock on a file if nobody has it.
func tryFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func dropFile(file *os.File) {
	// The lock is held, so that unlocking can only fail on a closed file, and
	// closing the file unlocks too.
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
}

// wait pauses for d or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
