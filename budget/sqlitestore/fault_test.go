package sqlitestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// fillUntil charges until an error, which it returns with how many were granted.
func fillUntil(store *sqlitestore.Store, prefix string, most int) (granted int, err error) {
	for ; granted < most; granted++ {
		id := fmt.Sprint(prefix, granted)
		// Ids and labels take room, so that few charges fill a page.
		i := driver.Item{ID: id, Operation: "op", Units: 1, Labels: driver.Labels{Job: strings.Repeat("j", 60), Region: id, Run: strings.Repeat("r", 50) + id}}
		got, err := store.Decide(context.Background(), driver.Batch{Budget: name, Now: noon, Limits: []limit.Limit{rolling(limit.MaxUnits, day)}, Items: []driver.Item{i}})
		if err != nil {
			return granted, err
		}
		if got.Items[0].Result != driver.Granted || got.Items[0].Replayed {
			return granted, fmt.Errorf("charge %s: %+v", id, got.Items[0])
		}
	}
	return granted, nil
}

// usedOf is what the ledger has counted of them.
func usedOf(store *sqlitestore.Store) (int64, error) {
	view, err := store.Look(context.Background(), driver.Look{Budget: name, Now: noon, Limits: []limit.Limit{rolling(limit.MaxUnits, day)}})
	if err != nil {
		return 0, err
	}
	return view.Limits[0].Used, nil
}

// standing is a store whose clock stands.
func standing(path string) (*sqlitestore.Store, error) {
	return sqlitestore.OpenWithClock(context.Background(), path, sqlitestore.Options{}, func() int64 { return noon })
}

// throughFullDisk fills a store until the disk is full, twice, and wants each
// time a refusal that says what to do, nothing charged by it, and the same store
// to go on once there is room.
func throughFullDisk(path string, fill, empty func() error, says string) error {
	store, err := standing(path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	total, err := fillUntil(store, "first-", 20)
	if err != nil {
		return fmt.Errorf("while there is room: %w", err)
	}
	for round := range 2 {
		if err := fill(); err != nil {
			return err
		}
		const most = 100_000
		prefix := fmt.Sprint("round-", round, "-")
		granted, err := fillUntil(store, prefix, most)
		total += granted
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "commit: ") == errors.Is(err, driver.ErrNotCharged) {
			return fmt.Errorf("round %d: after %d charges: %w, want ErrUnavailable that says %q, and ErrNotCharged unless it was the commit", round, granted, err, says)
		}
		if used, err := usedOf(store); err != nil || used != int64(total) {
			return fmt.Errorf("round %d: used %d on a full disk, %v; want %d", round, used, err, total) //nolint:errorlint // it may be nil
		}
		if err := empty(); err != nil {
			return err
		}
		// The id that was refused is charged, once, by the same store.
		again, err := fillUntil(store, prefix+"again-", 20)
		total += again
		if err != nil {
			return fmt.Errorf("round %d: once there is room again: %w", round, err)
		}
		late, err := store.Decide(context.Background(), driver.Batch{
			Budget: name, Now: noon, Limits: []limit.Limit{rolling(limit.MaxUnits, day)}, Items: []driver.Item{item(fmt.Sprint(prefix, granted), 1)},
		})
		if err != nil || late.Items[0].Result != driver.Granted || late.Items[0].Replayed {
			return fmt.Errorf("round %d: the charge that was refused: %+v, %v", round, late, err) //nolint:errorlint // it may be nil
		}
		total++
		if used, err := usedOf(store); err != nil || used != int64(total) {
			return fmt.Errorf("round %d: used %d once there is room again, %v; want %d", round, used, err, total) //nolint:errorlint // it may be nil
		}
	}
	return store.Close()
}

// isWhole wants SQLite to find a file in order.
func isWhole(t *testing.T, path string) {
	t.Helper()
	check.Equal(t, query[string](t, path, "PRAGMA integrity_check"), "ok", "integrity_check")
}

// A file that may not grow, as a quota on the disk or on a user has it: the
// operating system refuses the writes themselves.
func TestDiskQuota(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	if out, err := helper(t, "quota", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	isWhole(t, path)
}

// chargeOnFullDisk is the life of TestDiskQuota's process, which may write no file
// past a size.
func chargeOnFullDisk(orders string) error {
	var path string
	if err := json.Unmarshal([]byte(orders), &path); err != nil {
		return err
	}
	signal.Ignore(unix.SIGXFSZ)
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &usual); err != nil {
		return err
	}
	fill := func() error {
		size := int64(0)
		for _, suffix := range []string{"", "-wal"} {
			if info, err := os.Stat(path + suffix); err == nil {
				size = max(size, info.Size())
			}
		}
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size) + 10_000, Max: usual.Max})
	}
	empty := func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &usual) }
	return throughFullDisk(path, fill, empty, "ulimit -f")
}

// A disk without room, as SQLite itself finds it: the file may have no more pages.
func TestFileIsFull(t *testing.T) {
	b := newBench(t, rolling(limit.MaxUnits, day))
	total := 0
	for round := range 2 {
		sqlitestore.Pragma(b.store, "max_page_count=1") // as few as there are
		granted, err := fillUntil(b.store, fmt.Sprint(round, "-"), 100_000)
		total += granted
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "make room") {
			t.Fatalf("after %d charges: %v, want ErrUnavailable that says to make room", granted, err)
		}
		// The store goes on with another connection, which has no such bound.
		b.granted(item(fmt.Sprint(round, "-", granted), 1)) // the one that was refused
		total++
		must.Equal(t, b.used(), int64(total), "used, want", total)
	}
	isWhole(t, b.path)
}

// A process goes over to the file that another has put in the place of the one it
// had open, or makes one; it then finds lost what it knew of the old one.
func TestFileIsReplaced(t *testing.T) {
	for _, all := range []bool{false, true} { // the log and the lock's files too
		for _, looks := range []bool{false, true} {
			t.Run(fmt.Sprintf("all of it %v, a look first %v", all, looks), func(t *testing.T) {
				b := newBench(t, rolling(10, hour))
				b.granted(item("a", 1))
				told := must.Get(b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}))(t)
				must.Do(t, os.Remove(b.path))
				if all {
					others, err := filepath.Glob(b.path + "?*")
					for _, other := range others {
						err = errors.Join(err, os.Remove(other))
					}
					must.Do(t, err)
					other, err := sqlitestore.OpenWithClock(t.Context(), b.path, sqlitestore.Options{Timeout: patience}, func() int64 { return b.now }) // uses the file from now on
					must.Do(t, err)
					defer func() { _ = other.Close() }()
					must.Get(other.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}))(t)
				}
				if looks {
					if _, err := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits, Mark: told.Mark}); !errors.Is(err, driver.ErrLost) {
						t.Fatalf("a look at the new file: %v, want ErrLost", err)
					}
				}
				if _, err := b.store.Decide(t.Context(), driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Mark: told.Mark}); !errors.Is(err, driver.ErrLost) {
					t.Fatalf("a decision in the new file: %v, want ErrLost", err)
				}
				b.granted(item("b", 2))
				must.Equal(t, query[int](t, b.path, "SELECT sum(units) FROM entry"), 2, "the file in place holds … units")
			})
		}
	}
}

// A file that is replaced while a call waits for its lock gets nothing any more.
func TestFileIsReplacedDuringTheWait(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	b.granted(item("a", 1))
	release := hold(t, b.path+".lock")
	sqlitestore.EndSlice(b.store)
	done := make(chan error)
	go func() {
		got, err := b.store.Decide(context.Background(), driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: []driver.Item{item("b", 2)}})
		if err == nil && got.Items[0].Result != driver.Granted {
			err = fmt.Errorf("%+v", got.Items[0])
		}
		done <- err
	}()
	waits(t, b.path)
	must.Do(t, os.Remove(b.path))
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	must.Equal(t, query[int](t, b.path, "SELECT sum(units) FROM entry"), 2, "the file in place holds … units")
}

// While there is no directory for the file calls fail and say so, whatever lies in
// its place, and once it is back they go on.
func TestDirectoryIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must.Do(t, os.Mkdir(dir, 0o700))
	b := &bench{t: t, path: filepath.Join(dir, "q.db"), now: noon, limits: []limit.Limit{rolling(10, hour)}}
	b.open()
	t.Cleanup(func() { b.close() })
	b.granted(item("a", 1))
	fails := func(what string) {
		t.Helper()
		if _, err := b.store.Decide(t.Context(), driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: []driver.Item{item("b", 1)}}); !errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("%s: a charge: %v, want ErrStoreConfig", what, err)
		}
		if _, err := driver.Apply(t.Context(), b.store, driver.Lock{Budget: name, Now: b.now, After: 1_000_000, Most: driver.MaxLock}); !errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("%s: a lock: %v, want ErrStoreConfig", what, err)
		}
		if _, err := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}); !errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("%s: a look: %v, want ErrStoreConfig", what, err)
		}
	}
	for _, removedFirst := range []bool{true, false} {
		must.Do(t, os.RemoveAll(dir))
		if removedFirst {
			fails("it is removed")
		}
		must.Do(t, os.WriteFile(dir, nil, 0o600))
		fails("it is a file")
		must.Do(t, errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)))
		b.granted(item(fmt.Sprint("c", removedFirst), 2))
		must.Equal(t, query[int](t, b.path, "SELECT sum(units) FROM entry"), 2, "the file in place holds … units")
	}
}
