package outage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// shared is a store that outlives its hosts, can lose everything, and can fail.
type shared struct {
	driver.Store
	down        map[string]bool // the budgets whose server does not answer
	failRecover bool
	slow        time.Duration
}

func newShared() *shared { return &shared{Store: memstore.New(wallClock), down: map[string]bool{}} }

// lose empties the store.
func (s *shared) lose() { s.Store = memstore.New(wallClock) }

func (s *shared) Close() error { return nil }

func (s *shared) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if s.down[b.Budget] {
		return driver.Decisions{}, fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	}
	d, err := s.Store.Decide(ctx, b)
	timer := time.NewTimer(s.slow)
	<-timer.C
	return d, err
}

func (s *shared) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	if s.down[look.Budget] {
		return driver.View{}, fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	}
	return s.Store.Look(ctx, look)
}

func (s *shared) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	if _, ok := change.(driver.Recovery); ok && s.failRecover {
		return nil, fmt.Errorf("connection reset: %w", driver.ErrUnavailable)
	}
	return s.Store.Change(ctx, change)
}

// host is a host of processes on a shared store.
type host struct {
	t       *testing.T
	store   *shared
	options Options
}

func newHost(t *testing.T, o Options) *host {
	o.Dir, o.Timeout, o.Interval = t.TempDir(), 5*time.Minute, time.Millisecond
	return &host{t, newShared(), o}
}

func dayOf(name string, operations ...string) limit.Limit {
	return limit.Limit{Name: name, Quota: 1000, Headroom: 900, Limit: 100, Operations: operations, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
}

const up = "up/key1"

// charge is one process that charges once.
func (h *host) charge(limit limit.Limit, operation, id string, units int64) (driver.Decision, error) {
	h.t.Helper()
	s := New(h.store, h.options)
	defer func() { check.NoError(h.t, s.Close()) }()
	return chargeOn(s, up, limit, operation, id, units)
}

func chargeOn(s *Store, name string, l limit.Limit, operation, id string, units int64) (driver.Decision, error) {
	d, err := s.Decide(context.Background(), driver.Batch{
		Budget: name, Now: wallClock(), Limits: []limit.Limit{l},
		Items: []driver.Item{{ID: id, Operation: operation, Units: units, OnStoreError: driver.Open}},
	})
	if err != nil {
		return driver.Decision{}, err
	}
	return d.Items[0], d.Items[0].Err
}

// result charges and wants this result.
func (h *host) result(want driver.Result, limit limit.Limit, operation, id string, units int64) {
	h.t.Helper()
	must.Equal(h.t, must.Get(h.charge(limit, operation, id, units))(h.t).Result, want, id)
}

// A loss that was noticed waits for whoever can record it, whatever process that
// is: the first try fails, a limit of another operation comes first, or the end of
// a reservation that carries no limits.
func TestLossWaitsToBeRecorded(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(h *host){
		"the first try fails": func(h *host) {
			h.store.failRecover = true
			if d, err := h.charge(dayOf("day", "list"), "list", "failed", 1); err == nil && d.Result == driver.Granted && !d.Allowance {
				h.t.Fatalf("decided without what was lost: %+v", d)
			}
			h.store.failRecover = false
		},
		"another operation's limit": func(h *host) { h.result(driver.Granted, dayOf("searches", "search"), "search", "other", 1) },
		"the end of a reservation": func(h *host) {
			s := New(h.store, h.options)
			must.Get(driver.FinishOne(context.Background(), s, up, wallClock(), driver.Finish{ID: "unknown", Units: 1}))(h.t)
			must.Do(h.t, s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			h.result(driver.Granted, dayOf("searches", "search"), "search", "before", 90)
			h.result(driver.Granted, dayOf("day", "list"), "list", "a", 90)
			h.store.lose()
			between(h)
			timer := time.NewTimer(20 * time.Millisecond) // of the breaker
			<-timer.C
			h.result(driver.Refused, dayOf("day", "list"), "list", "b", 90)
			h.result(driver.Refused, dayOf("searches", "search"), "search", "c", 90)
			h.result(driver.Granted, dayOf("day", "list"), "list", "d", 10)
		})
	}
}

// Events of hours ago are recorded by a call that carries the windows in which they count,
// and stay written down until then.
func TestRecordsWaitForTheirWindows(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{Allowance: 100})
	s := New(h.store, h.options)
	defer func() { _ = s.Close() }()
	s.boot = func() (string, int64, error) { return "boot", 3 * 3_600_000_000, nil }
	long := &record{Budget: up, ID: "x", Boot: "boot", At: 3_600_000_000, Charge: &chargeRecord{Operation: "list", Units: 77, Held: dayOf("day").Longest()}}
	must.Do(t, s.journal.write(long))
	must.Equal(t, must.Get(driver.FinishOne(t.Context(), s, up, wallClock(), driver.Finish{ID: "reserved", Units: 3}))(t).Result, driver.Settled)
	must.Equal(t, must.Get(chargeOn(s, up, dayOf("searches", "search"), "search", "other", 1))(t).Result, driver.Granted)
	if !s.journal.pending(up) {
		t.Fatal("it is recorded by a call that does not know its window")
	}
	view, err := s.Look(t.Context(), driver.Look{Budget: up, Now: wallClock(), Limits: []limit.Limit{dayOf("day")}})
	if err != nil || view.Limits[0].Used != 78 || s.journal.pending(up) {
		t.Fatalf("%+v, %v: want 77 of two hours ago and 1", view, err)
	}
}

// A bucket that several hosts fill has no part for one of them.
func TestBucketsOfSeveralHostsAreClosed(t *testing.T) {
	t.Parallel()
	refill := must.Get(limit.NewRefill(50, time.Second))(t)
	bucket := limit.Limit{Name: "rate", Quota: 100, Headroom: 20, Limit: 80, Counts: limit.CountUnits, Window: limit.Window{Kind: limit.Bucket, Refill: refill}}
	for hosts, open := range map[int64]bool{1: true, 2: false} {
		h := newHost(t, Options{Allowance: 10, Hosts: hosts})
		h.store.down[up] = true
		d, err := h.charge(bucket, "list", "a", 1)
		check.Equal(t, err == nil && d.Result == driver.Granted, open, hosts, "hosts", d, err)
	}
}

// Where budgets stand on servers that go away on their own, one that is away
// leaves the others alone.
func TestABreakerForEachBudget(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{Allowance: 100, PerBudget: true})
	h.options.Interval = time.Hour
	s := New(h.store, h.options)
	defer func() { _ = s.Close() }()
	h.store.down[up] = true
	for i := range 20 {
		if d, err := chargeOn(s, up, dayOf("day"), "list", fmt.Sprint("a", i), 1); err != nil || !d.Allowance {
			t.Fatalf("%+v, %v", d, err)
		}
		if d, err := chargeOn(s, "up/key2", dayOf("day"), "list", fmt.Sprint("b", i), 1); err != nil || d.Allowance {
			t.Fatalf("a budget whose server answers: %+v, %v", d, err)
		}
	}
	if _, out := s.OutOfReach(); !out {
		t.Error("OutOfReach names no server")
	}
	other := New(h.store, h.options)
	defer func() { _ = other.Close() }()
	check.Equal(t, other.breakerFinding().Level, driver.Warning, "another process finds")
}

// What a burst left is written down a second later, without another call.
func TestWhatABurstLeftIsRemembered(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	s := New(h.store, h.options) // and never closed: it is killed
	for i := range 90 {
		must.Equal(t, must.Get(chargeOn(s, up, dayOf("day"), "list", fmt.Sprint(i), 1))(t).Result, driver.Granted)
	}
	for end := time.Now().Add(5 * time.Minute); ; {
		s.memory.mu.Lock()
		last, err := s.memory.load(up)
		s.memory.mu.Unlock()
		must.Do(t, err)
		written := last.Limits["day"].Used
		if written == 90 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of 90 are written", written)
		}
	}
	h.store.lose()
	h.result(driver.Refused, dayOf("day"), "list", "b", 11)
}

// A record that cannot be read is set aside, and keeps no other one back; where it
// cannot even be moved, nothing is decided.
func TestUnreadableRecords(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	s := New(h.store, h.options)
	defer func() { _ = s.Close() }()
	boot, now, err := s.boot()
	must.Do(t, err)
	for i := range 5 {
		must.Do(t, s.journal.write(&record{Budget: up, ID: fmt.Sprint("x", i), Boot: boot, At: now, Charge: &chargeRecord{Operation: "list", Units: 10}}))
	}
	folder := s.journal.folder(up)
	must.Do(t, os.Mkdir(filepath.Join(folder, "00.charge"), 0o700)) // as good as any that cannot be read
	left := filepath.Join(folder, ".tmp-1")                         // by a process that was killed
	must.Do(t, os.WriteFile(left, []byte("{"), 0o600))
	old := time.Now().Add(-2 * abandoned)
	must.Do(t, os.Chtimes(left, old, old))
	must.Equal(t, must.Get(chargeOn(s, up, dayOf("day"), "list", "new", 51))(t).Result, driver.Refused)
	if s.journal.pending(up) {
		t.Error("the journal is not empty")
	}
	check.Equal(t, s.left(asideFolder, driver.Fault, "", "", "").Level, driver.Fault)
	// A file in the folder's place cannot be listed, as one of another user's.
	must.Do(t, os.MkdirAll(filepath.Dir(folder), 0o700))
	must.Do(t, os.WriteFile(folder, nil, 0o600))
	if d, err := chargeOn(s, up, dayOf("day"), "list", "newer", 1); err == nil {
		t.Errorf("decided beside a journal that cannot be read: %+v", d)
	}
}

// Calls that notice a loss at the same time are all decided.
func TestALossNoticedByMany(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{})
	s := New(h.store, h.options)
	defer func() { _ = s.Close() }()
	must.Equal(t, must.Get(chargeOn(s, up, dayOf("day"), "list", "before", 50))(t).Result, driver.Granted)
	h.store.lose()
	h.store.slow = 20 * time.Millisecond
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if d, err := chargeOn(s, up, dayOf("day"), "list", fmt.Sprint(i), 1); err != nil || d.Result != driver.Granted {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	view, err := s.Look(t.Context(), driver.Look{Budget: up, Now: wallClock(), Limits: []limit.Limit{dayOf("day")}})
	if err != nil || view.Limits[0].Used != 58 {
		t.Errorf("%+v, %v", view, err)
	}
}

// The last word of the store counts: a grant takes a refusal back, in
// whatever process.
func TestTheLastWordStands(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{Allowance: 10})
	h.result(driver.Granted, dayOf("day"), "list", "a", 80)
	h.result(driver.Refused, dayOf("day"), "list", "b", 30)
	h.result(driver.Granted, dayOf("day"), "list", "c", 1)
	h.store.down[up] = true
	h.result(driver.Granted, dayOf("day"), "list", "d", 1)
	h.store.down[up] = false
}
