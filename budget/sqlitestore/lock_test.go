package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// hold takes the lock as another process would; the function gives it up.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	file := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	must.Do(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	return func() { check.NoError(t, file.Close()) }
}

func TestWaitsForTheLockOnlySoLong(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	sqlitestore.EndSlice(b.store)
	release := hold(t, b.path+".lock")
	batch := driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: []driver.Item{item("b", 1)}}

	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(errors.New("gave up"))
	check.Is(t, check.Err(b.store.Decide(ctx, batch)), context.Canceled, "cancelled")
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := b.store.Decide(ctx, batch); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("past the context's deadline: %v, want its error", err)
	}
	sqlitestore.SetTimeout(b.store, 20*time.Millisecond)
	_, err := b.store.Decide(t.Context(), batch)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "20ms") {
		t.Errorf("past the store's timeout: %v, want ErrUnavailable that names it", err)
	}
	sqlitestore.SetTimeout(b.store, patience)
	if got := b.used(); got != 1 { // looking waits for nobody
		t.Errorf("used %d while the lock is held, want 1", got)
	}
	check.NoError(t, check.Err(b.store.Job(t.Context(), "trending")), "reading a job")
	release()
	sqlitestore.SetTimeout(b.store, patience)
	b.granted(item("b", 1)) // none of the tries was charged late
}

// An item whose deadline passes while others hold the lock is not charged.
func TestDeadlinePassesWhileWaiting(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(lease(item("r", 1), hour))
	release := hold(t, b.path+".lock")
	sqlitestore.EndSlice(b.store)
	go func() { // when the call has waited past the first deadline
		waits(t, b.path)
		<-time.After(20 * time.Millisecond)
		release()
	}()
	late, early := item("late", 1), item("early", 1)
	late.Deadline = time.UnixMicro(b.now).Add(10 * time.Millisecond)
	early.Deadline = time.UnixMicro(b.now).Add(time.Hour)
	got := b.decide(late, early)
	must.Equal(t, got[0].Result, driver.Late)
	must.Equal(t, got[1].Result, driver.Granted)
	finished, err := driver.FinishOne(t.Context(), b.store, name, b.now, driver.Finish{ID: "r", Units: 5, Deadline: time.UnixMicro(b.now).Add(-time.Microsecond)})
	if err != nil || finished.Result != driver.FinishLate || b.used() != 2 {
		t.Fatalf("%+v, %v, used %d, want a late settlement that changed nothing", finished, err, b.used())
	}
}

// What was decided is not charged when the caller gave up before the commit.
func TestGivenUpBeforeTheCommit(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	ctx, cancel := context.WithCancel(t.Context())
	sqlitestore.SetClosing(b.store, cancel)
	batch := driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: []driver.Item{item("a", 1)}}
	must.Is(t, check.Err(b.store.Decide(ctx, batch)), context.Canceled)
	late, early := item("late", 1), item("early", 1)
	late.Deadline = time.UnixMicro(b.now).Add(30 * time.Millisecond)
	sqlitestore.SetClosing(b.store, func() {
		<-time.After(40 * time.Millisecond) // the time passes within the transaction
	})
	got := b.decide(early, late)
	must.Equal(t, got[0].Result, driver.Granted)
	must.Equal(t, got[1].Result, driver.Late)
	// A deadline that passes before the commit undoes the charge, and its answer.
	bounded, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	sqlitestore.SetClosing(b.store, func() { <-bounded.Done() })
	if got, err := b.store.Decide(bounded, batch); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%+v, %v: an answer on what was undone", got, err)
	}
	sqlitestore.SetClosing(b.store, nil)
	must.Equal(t, b.used(), 1, "used")
	b.granted(item("a", 1), item("late", 1))
}

// Another program that writes to the file is waited for, only so long, and the
// store works on afterwards.
func TestAnotherProgramWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	b.close()
	err := driver.ErrUnavailable
	for errors.Is(err, driver.ErrUnavailable) { // a second may be too short for a busy machine
		b.store, err = sqlitestore.OpenWithClock(t.Context(), b.path, sqlitestore.Options{Timeout: time.Second}, func() int64 { return b.now })
	}
	must.Do(t, err)
	sqlitestore.SetTimeout(b.store, patience)
	b.granted(item("a", 1))
	db, err := sql.Open("sqlite", b.path+"?_txlock=immediate")
	must.Do(t, err)
	defer func() { _ = db.Close() }()
	tx, err := db.Begin()
	must.Do(t, err)
	sqlitestore.SetTimeout(b.store, 50*time.Millisecond)
	check.Is(t, check.Err(b.try(name, item("b", 1))), driver.ErrUnavailable)
	must.Do(t, tx.Rollback())
	sqlitestore.SetTimeout(b.store, patience)
	b.granted(item("b", 1))
	must.Equal(t, b.used(), 2, "used")
}

// A process keeps the lock for a moment after calls that come at once, and lets go of it
// though no further call comes.
func TestLingeringLockIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(1000, hour))
	file := must.Get(os.OpenFile(b.path+".lock", os.O_RDWR, 0))(t)
	defer func() { _ = file.Close() }()
	tick, limit := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	kept := 0
	for n := range 200 {
		b.granted(item(fmt.Sprint("a", n), 1))
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			kept++
			continue
		}
		_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	}
	if kept == 0 {
		t.Error("it never kept the lock")
	}
	for unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it never lets go of the lock")
		}
	}
}

// A call that gives up in the moment that it gets the lock leaves it to the next.
func TestLockComesAsTheCallGivesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(10, hour))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2000 {
		if err := sqlitestore.WaitForLock(ended, b.store); err == nil { // it came first
			sqlitestore.DropLock(b.store)
		}
	}
	b.granted(item("a", 1))
}

// A process that died while it prepared the file may hold SQLite's lock for longer
// than path.lock.
func TestOpenWaitsForAFileThatIsPrepared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	db := must.Get(sql.Open("sqlite", path+"?_txlock=immediate"))(t)
	defer func() { check.NoError(t, db.Close()) }()
	held := must.Get(db.Begin())(t)
	_, err := sqlitestore.Open(t.Context(), path, sqlitestore.Options{Timeout: 100 * time.Millisecond})
	check.Is(t, err, driver.ErrUnavailable, "held for longer than the timeout")
	check.Contains(t, fmt.Sprint(err), "waited 100ms for its turn")
	must.Do(t, held.Rollback())
	store := must.Get(sqlitestore.Open(t.Context(), path, sqlitestore.Options{Timeout: patience}))(t)
	check.NoError(t, store.Close())
}
