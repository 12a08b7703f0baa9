package outage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// visitors is more budgets than breakers are kept.
const visitors = 4096 + 100

// folders counts those of the budgets' breakers.
func folders(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, "breakers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(list)
}

// The visitors of a credential "*" have no end, the breakers that are kept do: one
// that knows something of its own is let go of last, and what lies in the
// directory outlives it.
func TestBreakersAreBounded(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		s := New(newShared(), Options{Dir: dir, PerBudget: true, Timeout: time.Second, Interval: time.Minute})
		if !s.breaker(up).open(driver.ErrUnavailable) {
			t.Fatal("it was open")
		}
		for i := range visitors {
			s.breaker(fmt.Sprint("up/", i))
		}
		if len(s.breakers) > visitors-100 {
			t.Errorf("directory %q: %d breakers are kept", dir, len(s.breakers))
		}
		if _, open := s.breaker(up).read(); !open {
			t.Errorf("directory %q: the one that was open is not any more", dir)
		}
		if list := s.allBreakers(); len(list) != 1 {
			t.Errorf("directory %q: %d breakers may be open, want one", dir, len(list))
		}
		for i := range visitors { // an outage
			s.breaker(fmt.Sprint("up/", i)).open(driver.ErrUnavailable)
			if i > 10 && dir != "" {
				break // their number is the directory's
			}
		}
		if len(s.breakers) > visitors-100 {
			t.Errorf("directory %q: %d open breakers are kept", dir, len(s.breakers))
		}
		check.NoError(t, s.Close())
	}
}

// Looking whether a server is away loads nothing for good.
func TestLookingKeepsNoBreakers(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{PerBudget: true})
	h.options.Interval = time.Hour
	one, other := New(h.store, h.options), New(h.store, h.options)
	defer func() { _, _ = one.Close(), other.Close() }()
	for i := range 10 {
		one.breaker(fmt.Sprint("up/", i)).open(driver.ErrUnavailable)
	}
	if _, out := other.OutOfReach(); !out || len(other.breakers) != 0 {
		t.Errorf("away: %v, and %d breakers are kept", out, len(other.breakers))
	}
}

// A breaker that closes leaves no folder, unless something else lies in it; the
// host's own directory stays.
func TestAShutBreakerLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		h := newHost(t, Options{PerBudget: own})
		for _, name := range []string{up, "up/key2"} {
			s := New(h.store, h.options)
			s.breaker(name).open(driver.ErrUnavailable)
			must.Get(os.Stat(s.breaker(name).file()))(t)
			if name != up && own {
				must.Do(t, os.WriteFile(filepath.Join(s.breaker(name).dir, "note"), nil, 0o600))
			}
			if !s.breaker(name).shut() {
				t.Fatal("it was shut")
			}
			check.Is(t, check.Err(os.Stat(s.breaker(name).file())), os.ErrNotExist, "the file is there")
			want := 0
			if name != up && own {
				want = 1
			}
			check.Equal(t, folders(t, h.options.Dir), want, "own", own, name, "… folders")
			check.NoError(t, check.Err(os.Stat(h.options.Dir)), "the host's directory")
			check.NoError(t, s.Close())
		}
	}
}

// A visitor who does not come back does not count as out of reach for ever.
func TestAnAbandonedBreaker(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		s := New(newShared(), Options{Dir: dir, PerBudget: true, Timeout: time.Second, Interval: time.Second})
		id, now := "boot", int64(5_000_000)
		s.boot = func() (string, int64, error) { return id, now, nil }
		s.breaker(up).open(driver.ErrUnavailable)
		now += abandonedAfter.Microseconds()
		if _, out := s.OutOfReach(); !out {
			t.Errorf("directory %q: shut too early", dir)
		}
		now += 1_000_000
		if _, out := s.OutOfReach(); out || dir != "" && folders(t, dir) != 0 {
			t.Errorf("directory %q: an hour after the last probe: %v", dir, out)
		}
		s.breaker(up).open(driver.ErrUnavailable)
		if _, out := s.OutOfReach(); !out {
			t.Errorf("directory %q: it does not open again", dir)
		}
		if id = "another"; dir != "" { // one that this process opened alone is of this boot
			if _, out := s.OutOfReach(); out || folders(t, dir) != 0 {
				t.Errorf("of an earlier boot: %v", out)
			}
		}
		check.NoError(t, s.Close())
	}
}

// Processes that open and close one breaker at once take its folder away from each other: it
// still reports that it is open.
func TestOpenedWhileShut(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{PerBudget: true})
	one, other := New(h.store, h.options), New(h.store, h.options)
	defer func() { _, _ = one.Close(), other.Close() }()
	done := make(chan struct{})
	var shutting sync.WaitGroup
	shutting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				other.breaker(up).shut()
				other.allBreakers()
			}
		}
	})
	for range 2000 {
		one.breaker(up).open(driver.ErrUnavailable)
		if !one.breaker(up).idle() {
			t.Error("it is open for one process alone")
			break
		}
	}
	close(done)
	shutting.Wait()
	one.breaker(up).shut()
	one.breaker(up).open(driver.ErrUnavailable)
	if _, open := other.breaker(up).read(); !open {
		t.Error("another process does not see it")
	}
}
