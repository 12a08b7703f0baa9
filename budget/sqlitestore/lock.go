package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// slice is how long a process may retake the lock ahead of waiting processes. Switching
// processes costs about as much as several writes, so switching after each write would cost
// most of the rate.
const slice = 3 * time.Millisecond

// aside is how long a process leaves the lock alone after its slice while others
// wait. The kernel does not hand the lock over: it wakes the first waiter, which must then
// be faster than the process that has just dropped the lock.
const aside = time.Millisecond

// linger is how long a process keeps the lock after a call in its slice, if the call before
// was no longer ago than that. Otherwise the first waiter, woken by each drop, would take
// over in the middle of the slice.
const linger = 500 * time.Microsecond

// fileLock is the lock by which processes take turns to write. SQLite's own
// lock keeps the file right without it, but polls in a way that lets one
// process wait for seconds while others go on.
//
// A waiting process sleeps in the kernel, in a thread that outlives the call: a call
// that gives up leaves its place in the queue to the next call of the process. A
// process that is stopped while it waits loses its place and keeps nobody out.
//
// The lock has files of its own: a process that opens and closes SQLite's files
// itself drops the locks that SQLite holds on them. PATH.lock is the lock, and
// holds the pid and name of its last holder. Waiting processes share a lock on
// PATH.next; that is how a process at the end of its slice knows of them.
//
// One goroutine uses it at a time.
type fileLock struct {
	lock  *os.File
	next  *os.File
	name  []byte    // this process's signature
	since time.Time // when the slice began
	left  time.Time // when the last call released the lock; written with mu

	mu     sync.Mutex  // guards all below
	asking bool        // a thread waits for the lock, or has it and passes it on
	caller chan error  // the call that waits for the thread; nil: no call does
	closed bool        // the thread must close the files
	quick  bool        // the last calls came within linger of each other, and no linger since was in vain
	kept   bool        // the lock lingers
	ends   *time.Timer // calls letGo; nil: it is not to be called
}

// ownerOnly is the mode of the files that a store makes: what was spent is private.
// Existing files keep their mode, so that a person can share a store with a group
// by changing the mode of all of its files.
const ownerOnly = 0o600

// openLock opens path.lock and path.next, or creates them.
func openLock(path string) (*fileLock, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, err
	}
	next, err := os.OpenFile(path+".next", os.O_RDWR|os.O_CREATE, ownerOnly)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &fileLock{lock: lock, next: next, name: signature()}, nil
}

// take waits for the lock until the context ends. The error is the context's, or a
// heldError of it.
func (l *fileLock) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.lingers() {
		return nil
	}
	free, err := l.try(ctx)
	if err == nil && !free {
		err = l.wait(ctx)
	}
	if err == nil {
		l.taken()
	}
	return err
}

// try takes the lock if it is free, unless the slice is over and others wait.
func (l *fileLock) try(ctx context.Context) (free bool, err error) {
	l.mu.Lock()
	asking := l.asking
	l.mu.Unlock()
	if asking { // the thread uses the files
		return false, nil
	}
	if time.Since(l.since) >= slice && l.awaited() {
		rest := aside - time.Since(l.left)
		if rest > 0 {
			err = wait(ctx, rest)
		}
		return false, err
	}
	switch err := tryFile(l.lock); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	default:
		return false, fmt.Errorf("lock %s: %w", l.lock.Name(), err)
	}
}

// poll is take for a caller that closes the lock if it does not get it: poll leaves
// no thread behind.
func (l *fileLock) poll(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		switch err := tryFile(l.lock); {
		case err == nil:
			l.sign()
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", l.lock.Name(), err)
		}
		if err := wait(ctx, pause); err != nil {
			return &heldError{by: l.holder(), cause: err}
		}
	}
}

// The pauses between attempts grow from firstPause to lastPause.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// taken begins a slice, unless one is under way, and signs the lock's file.
func (l *fileLock) taken() {
	if time.Since(l.since) >= slice {
		l.since = time.Now()
	}
	l.sign()
}

// awaited reports whether another process waits for the lock.
func (l *fileLock) awaited() bool {
	if tryFile(l.next) != nil {
		return true
	}
	dropFile(l.next)
	return false
}

// wait waits for the lock in the kernel's queue, until the context ends.
func (l *fileLock) wait(ctx context.Context) error {
	got := make(chan error, 1)
	l.mu.Lock()
	l.caller = got
	if !l.asking {
		l.asking = true
		go l.ask()
	}
	l.mu.Unlock()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.caller = nil
	select {
	case err := <-got: // the thread got the lock at the last moment
		if err == nil {
			dropFile(l.lock)
		}
	default:
	}
	return &heldError{by: l.holder(), cause: ctx.Err()}
}

// ask waits for the lock, however long that takes, and passes it to the call that waits for
// it then. If no call does, ask drops the lock.
func (l *fileLock) ask() {
	l.mark()
	err := lockFile(l.lock)
	if err == nil {
		l.sign()
	}
	dropFile(l.next)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking = false
	switch {
	case l.closed:
		_ = l.closeFiles() // nobody is left to return the error to
	case l.caller != nil:
		l.caller <- err
		l.caller = nil
	case err == nil:
		dropFile(l.lock)
	}
}

// mark shows others that this process waits. If a process is stopped within awaited, mark
// fails until that process resumes: then this process waits unseen.
func (l *fileLock) mark() {
	for range 10 {
		if unix.Flock(int(l.next.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
			return
		}
		<-time.After(aside / 10)
	}
}

// drop releases the lock, or lets it linger.
func (l *fileLock) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = time.Now()
	if !l.quick || time.Since(l.since) >= slice {
		dropFile(l.lock)
		return
	}
	l.kept = true
	if l.ends == nil {
		l.ends = time.AfterFunc(linger, l.letGo)
	}
}

// letGo drops the lock if it has lingered long enough, else sets the timer again. A timer
// for each call would wake a thread for each call.
func (l *fileLock) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := linger - time.Since(l.left)
	if l.kept && !l.closed && rest > 0 {
		l.ends.Reset(rest)
		return
	}
	l.ends = nil
	if l.kept && !l.closed {
		l.kept, l.quick = false, false
		dropFile(l.lock)
	}
}

// lingers reports whether the lock still lingered. If so, the caller has it now.
func (l *fileLock) lingers() (kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.left) < linger {
		l.quick = true
	}
	kept, l.kept = l.kept, false
	return kept
}

// close closes the files, or leaves that to the waiting thread.
func (l *fileLock) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.asking {
		return nil
	}
	return l.closeFiles()
}

func (l *fileLock) closeFiles() error { return errors.Join(l.lock.Close(), l.next.Close()) }

// lockFile waits for the lock on a file in the kernel's queue.
func lockFile(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tryFile takes the lock on a file if nobody has it.
func tryFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

func dropFile(file *os.File) {
	// The lock is held, so unlocking can only fail on a closed file, and closing a
	// file unlocks it too.
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
