package outage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Files that another process may be writing stay: it keeps the others from own/ meanwhile.
func TestFilesThatAreWrittenStay(t *testing.T) {
	t.Parallel()
	h := &hostMemory{t: t, dir: t.TempDir()}
	m := h.open()
	h.charge(m)
	m.close()
	then := time.Now().Add(-400 * 24 * time.Hour)
	m = h.open()
	m.wall = func() int64 { return time.Now().Add(400 * 24 * time.Hour).UnixMicro() }
	for _, path := range []string{m.file(up), m.ownFile(up)} {
		must.Do(t, os.Chtimes(path, then, then))
	}
	lock := must.Get(os.OpenFile(filepath.Join(h.dir, "memory.lock"), os.O_RDWR, 0))(t)
	must.Do(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	for _, stays := range []bool{true, false} {
		must.Do(t, os.RemoveAll(filepath.Join(h.dir, "swept")))
		m.sweep()
		for _, path := range []string{m.file(up), m.ownFile(up)} {
			check.Equal(t, check.Err(os.Stat(path)) == nil, stays, path)
		}
		_ = lock.Close()
	}
}

// What killed waiters left goes, and what belongs to a waiter stays, however old it is.
func TestFilesOfKilledWaitersGo(t *testing.T) {
	t.Parallel()
	h := &hostMemory{t: t, dir: t.TempDir()}
	folder := filepath.Join(h.dir, waitingFolder)
	must.Do(t, os.Mkdir(folder, 0o700))
	old := time.Now().Add(-abandoned - time.Hour)
	for name, content := range map[string]string{"killed": "{}", "waits": "{}", "never-written": "", "new": ""} {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		if name != "new" { // a waiter locks it in a moment
			must.Do(t, os.Chtimes(path, old, old))
		}
	}
	file := must.Get(os.Open(filepath.Join(folder, "waits")))(t)
	defer file.Close() //nolint:errcheck // it was only read
	must.Do(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	h.open().sweep()
	var left []string
	for _, e := range must.Get(os.ReadDir(folder))(t) {
		left = append(left, e.Name())
	}
	check.EqualSlices(t, left, []string{"new", "waits"}, "files")
}

// The files of a budget go a week after nothing of it counts any more, and not before.
func TestFilesOfIdleBudgetsGo(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	h := &hostMemory{t: t, dir: t.TempDir()}
	for i, one := range []struct {
		window, age, locked time.Duration
		stays               bool
	}{
		{time.Minute, time.Hour, 0, true},
		{time.Minute, 7 * day, 0, true},
		{time.Minute, 8*day + time.Hour, 0, false},
		{30 * day, 20 * day, 0, true},
		{30 * day, 38*day - time.Hour, 0, true},
		{30 * day, 38*day + time.Hour, 0, false},
		{time.Minute, 20 * day, 15 * day, true},
		{time.Minute, 24 * day, 15 * day, false},
	} {
		name, then := fmt.Sprint("shop/v", i), time.Now().Add(-one.age)
		m := h.open()
		m.boot = func() (string, int64, error) { return "boot", 1, nil }
		l := dayOf("w")
		l.Window = limit.RollingWindow(one.window)
		at := then.UnixMicro()
		must.Do(t, m.saw(driver.Batch{Budget: name, Limits: []limit.Limit{l}, Items: []driver.Item{{ID: "a", Operation: "list", Units: 2}}}, driver.Decisions{
			Now: at, Items: []driver.Decision{{Result: driver.Granted, Units: 2, At: at}}, Used: []int64{2}, Mark: driver.Mark{Ledger: "l", ID: "a", At: at, Seen: at},
		}))
		if one.locked > 0 {
			must.Do(t, m.locked(name, "", at, at+one.locked.Microseconds(), "closed", false))
		}
		m.close()
		for _, path := range []string{m.file(name), m.ownFile(name)} {
			must.Do(t, os.Chtimes(path, then, then))
		}
		defer func() {
			for _, path := range []string{m.file(name), m.ownFile(name)} {
				_, err := os.Stat(path)
				check.Equal(t, err == nil, one.stays, path, one)
			}
		}()
	}
	left := filepath.Join(h.dir, "memory", ".tmp-1")
	must.Do(t, os.WriteFile(left, nil, 0o600))
	old := time.Now().Add(-time.Hour - time.Minute)
	must.Do(t, os.Chtimes(left, old, old))
	must.Do(t, os.Chtimes(filepath.Join(h.dir, "swept"), old, old))
	m := h.open()
	h.charge(m) // any use of the host
	m.close()
	check.Equal(t, h.written(), 2)
	_, err := os.Stat(left)
	check.Equal(t, os.IsNotExist(err), true, "what a write left")
}

// Charges of an outage that nobody has recorded stay for a year: their window may be longer than
// those that the host has heard of.
func TestUnrecordedChargesStay(t *testing.T) {
	t.Parallel()
	m := (&hostMemory{t: t, dir: t.TempDir()}).open()
	must.Do(t, os.Mkdir(filepath.Join(m.dir, "memory"), 0o700))
	for days, stays := range map[time.Duration]bool{9: true, 300: true, 380: false} {
		name, then := fmt.Sprint("shop/v", int(days)), time.Now().Add(-days*24*time.Hour)
		must.Do(t, os.WriteFile(m.file(name), []byte(`{"limits": {}, "held": 60000000}`), 0o600))
		j := journal{dir: m.dir}
		must.Do(t, j.write(&record{Budget: name, ID: "x", Boot: "boot", At: 1, Charge: &chargeRecord{Operation: "list", Units: 2}}))
		must.Do(t, errors.Join(os.Chtimes(m.file(name), then, then), os.Chtimes(j.folder(name), then, then)))
		defer func() { check.Equal(t, j.pending(name), stays, days, "days") }()
	}
	m.sweep()
}

// A process that ends leaves most of a long sweep to the next one; budgets that still count are no
// part of it.
func TestALongSweepDelaysNoEnd(t *testing.T) {
	t.Parallel()
	m := (&hostMemory{t: t, dir: t.TempDir()}).open()
	must.Do(t, os.Mkdir(filepath.Join(m.dir, "memory"), 0o700))
	put := func(name string, days time.Duration, text string) {
		then := time.Now().Add(-days * 24 * time.Hour)
		must.Do(t, errors.Join(os.WriteFile(m.file(name), []byte(text), 0o600), os.Chtimes(m.file(name), then, then)))
	}
	for i := range enough + 50 {
		put(fmt.Sprint("shop/v", i), 400, `{"limits": {}}`)
		put(fmt.Sprint("shop/month", i), 9, fmt.Sprintf(`{"limits": {}, "held": %d, "newest": {"Seen": %d}}`, 30*24*time.Hour.Microseconds(), time.Now().Add(-9*24*time.Hour).UnixMicro()))
	}
	m.closed.Store(true)
	for _, left := range []int{50, 0} {
		m.sweep()
		check.Equal(t, len(m.names()), enough+50+left, "files are left")
	}
	check.NoError(t, check.Err(os.Stat(filepath.Join(m.dir, "swept"))))
}
