package outage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// ruin is a store that loses all it holds at once, and hosts on it, in time that
// stands still but where a test lets it pass.
type ruin struct {
	t      *testing.T
	now    int64
	store  *flaky
	limits []limit.Limit
	log    syncBuffer
	n      int
}

// The quota is 110, of which 10 are kept back; each of two hosts has a part of 5.
func newRuin(t *testing.T) *ruin {
	r := &ruin{t: t, now: time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro(), store: &flaky{}, limits: []limit.Limit{
		{Name: "day", Quota: 110, Headroom: 10, Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
	}}
	r.flush()
	return r
}

// clock is read by timers too, which write what the hosts remember.
func (r *ruin) clock() int64 { return atomic.LoadInt64(&r.now) }

func (r *ruin) flush() { r.store.replace(memstore.New(r.clock)) }

func (r *ruin) host(hosts int64) *outage.Store {
	return r.process(r.t.TempDir(), hosts)
}

func (r *ruin) process(dir string, hosts int64) *outage.Store {
	return r.processOn(r.store, dir, hosts)
}

// processOn is a process that reaches the store in a way of its own.
func (r *ruin) processOn(store driver.Store, dir string, hosts int64) *outage.Store {
	s := outage.New(store, outage.Options{
		Dir: dir, Allowance: 5, Hosts: hosts, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Clocks: &sqlitestore.Clocks{Wall: r.clock, Boot: func() (string, int64, error) { return "boot", r.clock(), nil }},
	})
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

// decide asks for units, a second later.
func (r *ruin) decide(s driver.Store, units int64) driver.Decision {
	r.t.Helper()
	atomic.AddInt64(&r.now, 1_000_000)
	r.n++
	d := must.Get(s.Decide(r.t.Context(), driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: fmt.Sprint("id", r.n), Operation: "list", Units: units}}}))(r.t)
	return d.Items[0]
}

// spend charges one unit after the other until one is refused.
func (r *ruin) spend(s driver.Store, most int64) (spent int64, refusal driver.Decision) {
	r.t.Helper()
	for spent < most {
		if refusal = r.decide(s, 1); refusal.Result != driver.Granted {
			return spent, refusal
		}
		spent++
	}
	return spent, driver.Decision{}
}

func (r *ruin) used(s driver.Store) int64 {
	r.t.Helper()
	atomic.AddInt64(&r.now, 1_000_000)
	view := must.Get(s.Look(r.t.Context(), driver.Look{Budget: "up/key1", Now: r.now, Limits: r.limits}))(r.t)
	return view.Limits[0].Used
}

// One host, and losses one after the other with nothing granted between them.
func TestLostAgain(t *testing.T) {
	for between, act := range map[string]func(*ruin, driver.Store){
		"a refusal": func(r *ruin, s driver.Store) {
			must.Equal(r.t, r.decide(s, 1).Result, driver.Refused, "of a budget that is spent")
		},
		"a look": func(r *ruin, s driver.Store) { r.used(s) },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %v", between, restarts), func(t *testing.T) {
				r := newRuin(t)
				dir := t.TempDir()
				s := r.process(dir, 1)
				if spent, _ := r.spend(s, 1000); spent != 100 {
					t.Fatalf("%d spent of 100", spent)
				}
				for range 6 {
					r.flush()
					if restarts {
						must.Do(t, s.Close())
						s = r.process(dir, 1)
					}
					act(r, s)
				}
				if more, _ := r.spend(s, 1000); more != 0 {
					t.Fatalf("%d more were granted of a budget that is spent", more)
				}
			})
		}
	}
}

// After a loss the host that knows little may spend its own part and no more,
// until the one that knows more has come.
func TestIdleHostComesFirst(t *testing.T) {
	r := newRuin(t)
	idle, busy := r.host(2), r.host(2)
	r.spend(idle, 10)
	if more, _ := r.spend(busy, 1000); more != 90 {
		t.Fatalf("%d spent of the 90 that were left", more)
	}
	r.flush()
	noticed := r.now + 1_000_000
	part, refusal := r.spend(idle, 1000)
	if part != 5 || !refusal.Recovering || refusal.RetryAt != noticed+driver.RecoveryWait {
		t.Fatalf("the idle host spent %d and got %+v; want its part of 5, and a refusal until a minute after %d", part, refusal, noticed)
	}
	must.Equal(t, r.used(busy), 105, "used when both have told")
	if more, refusal := r.spend(idle, 1000); more != 0 || refusal.Recovering {
		t.Fatalf("then the idle host spent %d more, and got %+v", more, refusal)
	}
	if more, _ := r.spend(busy, 1000); more != 0 {
		t.Fatalf("the busy host spent %d more", more)
	}
	// The part counts for the whole window, whatever is lost meanwhile.
	r.flush()
	if more, _ := r.spend(idle, 1000); more != 0 {
		t.Fatalf("after another loss the idle host spent %d more", more)
	}
}

// What a host saw in a look it knows like what it charged itself.
func TestALookIsRemembered(t *testing.T) {
	r := newRuin(t)
	looks, charges := r.host(1), r.host(1)
	r.spend(looks, 1)
	r.spend(charges, 50)
	r.used(looks)
	r.flush()
	must.Equal(t, r.used(looks), 51, "used, want the 51 that were seen")
}

// A host that only ever looked is none of those that are waited for.
func TestLookingIsNoReport(t *testing.T) {
	r := newRuin(t)
	idle, busy, monitor := r.host(2), r.host(2), r.host(2)
	r.spend(idle, 1)
	r.used(monitor)
	r.spend(busy, 60)
	r.flush()
	r.used(idle)
	r.used(monitor)
	if part, refusal := r.spend(idle, 1000); part != 5 || !refusal.Recovering {
		t.Fatalf("with the busy host silent %d are granted, and then %+v", part, refusal)
	}
	r.used(busy)
	if more, _ := r.spend(idle, 1000); more != 100-61-5 {
		t.Fatalf("%d more when both have reported, want what is left", more)
	}
}

// After a loss, only the units that no host but a silent one knows of may be spent beyond the
// quota: docs/outages.md says so.
func TestWhatRemains(t *testing.T) {
	t.Run("a host that is silent for a minute", func(t *testing.T) {
		r := newRuin(t)
		idle, busy := r.host(2), r.host(2)
		r.spend(idle, 10)
		alone, _ := r.spend(busy, 1000)
		r.flush()
		part, refusal := r.spend(idle, 1000)
		atomic.StoreInt64(&r.now, refusal.RetryAt-2_000_000)
		must.Equal(t, r.decide(idle, 1).Result, driver.Refused, "a second before the minute is over")
		again, _ := r.spend(idle, 1000) // one second later
		if again+part != alone {
			t.Fatalf("%d and %d were granted anew, want the %d that the silent host alone knew of", part, again, alone)
		}
	})
	t.Run("a loss that a host cannot notice", func(t *testing.T) {
		r := newRuin(t)
		path := filepath.Join(t.TempDir(), "q.db")
		r.inFile(path)
		first, second := r.host(2), r.host(2)
		r.spend(first, 10)
		r.inFile(filepath.Join(t.TempDir(), "other.db")) // so that the first is closed
		kept := must.Get(os.ReadFile(path))(t)
		r.inFile(path)
		alone, _ := r.spend(second, 50)
		r.inFile(filepath.Join(t.TempDir(), "another.db"))
		must.Do(t, os.WriteFile(path, kept, 0o600))
		r.inFile(path)
		again, _ := r.spend(first, 1000)
		if used := r.used(second); used != 10+alone+again || again > 90 {
			t.Fatalf("%d are known as used, want 10, the %d that were lost and the %d of the host that did not notice", used, alone, again)
		}
		if more, _ := r.spend(first, 1000); more != 0 {
			t.Fatalf("%d more were granted when both had told", more)
		}
	})
}

// inFile has the store in a file from now on.
func (r *ruin) inFile(path string) {
	r.t.Helper()
	if r.store.inner() != nil {
		must.Do(r.t, r.store.inner().Close())
	}
	s := must.Get(sqlitestore.Open(r.t.Context(), path, sqlitestore.Options{
		Timeout: time.Minute,
		Clocks:  &sqlitestore.Clocks{Wall: r.clock, Boot: func() (string, int64, error) { return "boot", r.clock(), nil }},
	}))(r.t)
	r.t.Cleanup(func() { _ = s.Close() })
	r.store.replace(s)
}

// A second state directory at work beside the one that the configuration counts is
// noticed, and said once an hour.
func TestUncountedHost(t *testing.T) {
	r := newRuin(t)
	first, second := r.host(1), r.host(1)
	r.spend(first, 5)
	if strings.Contains(r.log.String(), "state directories") {
		t.Fatalf("one host alone: %s", r.log.String())
	}
	r.spend(second, 5)
	r.spend(first, 5)
	if n := strings.Count(r.log.String(), "more state directories are in use on this budget than [store] hosts says"); n != 2 {
		t.Fatalf("it was said %d times, want once by each host:\n%s", n, r.log.String())
	}
	atomic.AddInt64(&r.now, driver.HostNoted)
	before := r.log.String()
	r.spend(first, 5)
	if after := r.log.String(); after != before {
		t.Fatalf("a day after the other was last at work: %s", after)
	}
}

// The host sets a lock that it has heard of again in a store that has lost it.
func TestLocksOutliveALoss(t *testing.T) {
	r := newRuin(t)
	s := r.host(1)
	r.spend(s, 5)
	until := r.now + (2 * time.Hour).Microseconds()
	for _, limit := range []string{"", "day"} {
		must.Get(driver.Apply(t.Context(), s, driver.Lock{Budget: "up/key1", Limit: limit, Now: r.now, Until: until, Most: driver.MaxLock, Why: "quotaExceeded"}))(t)
	}
	r.flush()
	if d := r.decide(s, 1); d.Result != driver.Refused || !d.Locked || d.Why != "quotaExceeded" || d.RetryAt < until {
		t.Fatalf("after the loss: %+v, want it locked until %d", d, until)
	}
	view, err := r.store.inner().Look(t.Context(), driver.Look{Budget: "up/key1", Now: r.now, Limits: r.limits})
	must.Do(t, err)
	must.Equal(t, len(view.Locks), 2)
	must.Get(driver.Apply(t.Context(), s, driver.Unlock{Budget: "up/key1", Limit: "", Now: r.now}))(t)
	r.flush()
	r.decide(s, 1)
	if view, err = r.store.inner().Look(t.Context(), driver.Look{Budget: "up/key1", Now: r.now, Limits: r.limits}); err != nil || len(view.Locks) != 1 || view.Locks[0].Limit != "day" {
		t.Fatalf("%+v, %v, want the lock of the limit alone", view.Locks, err)
	}
}

// A ledger that is rolled back while a call is under way answers that one as if
// nothing had happened; the next call finds out.
func TestRolledBackUnderACall(t *testing.T) {
	r := newRuin(t)
	path := filepath.Join(t.TempDir(), "q.db")
	r.inFile(path)
	s := r.host(1)
	r.spend(s, 10)
	r.inFile(filepath.Join(t.TempDir(), "other.db"))
	kept := must.Get(os.ReadFile(path))(t)
	r.inFile(path)
	// The slow call has set out with what is known now; the others are quicker.
	slow := &held{Store: r.store.inner(), arrived: make(chan struct{}), goes: make(chan struct{})}
	r.store.replace(slow)
	done := make(chan driver.Decision)
	batch := driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: "slow", Operation: "list", Units: 1}}}
	go func() {
		d, err := s.Decide(t.Context(), batch)
		if err != nil {
			t.Error(err)
			d.Items = make([]driver.Decision, 1)
		}
		done <- d.Items[0]
	}()
	<-slow.arrived
	r.store.replace(slow.Store)
	r.spend(s, 60)
	r.inFile(filepath.Join(t.TempDir(), "another.db"))
	must.Do(t, os.WriteFile(path, kept, 0o600))
	r.inFile(path)
	atomic.AddInt64(&r.now, 1_000_000)
	slow.Store = r.store.inner()
	close(slow.goes)
	if d := <-done; d.Result != driver.Granted {
		t.Fatalf("the slow call: %+v", d)
	}
	if more, _ := r.spend(s, 1000); more > 30 {
		t.Fatalf("%d more were granted of 100, of which 71 were spent and 70 known", more)
	}
}

// held is a store whose next decision waits.
type held struct {
	driver.Store
	arrived, goes chan struct{}
}

func (h *held) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	close(h.arrived)
	<-h.goes
	return h.Store.Decide(ctx, b)
}

// What an older version remembered is taken over: its file has no ledger's id.
func TestMemoryOfAnOlderVersion(t *testing.T) {
	r := newRuin(t)
	dir := t.TempDir()
	s := r.process(dir, 1)
	r.spend(s, 1000)
	must.Do(t, s.Close())
	old := fmt.Sprintf(`{"newest":{"ID":"id%d","At":%d},"limits":{"day":{"used":100,"at":%d,"lost":{"ID":"","At":0},"done":{"ID":"","At":0}}},"missed":{"ID":"","At":0}}`, r.n-1, r.now-1_000_000, r.now)
	path := filepath.Join(dir, "memory", "up+key1")
	must.Do(t, os.WriteFile(path, []byte(old), 0o600))
	s = r.process(dir, 1)
	if used := r.used(s); used != 100 { // nothing is lost, and nothing recorded twice
		t.Fatalf("%d are used, want 100", used)
	}
	must.Do(t, errors.Join(s.Close(), os.WriteFile(path, []byte(old), 0o600)))
	r.flush()
	if more, _ := r.spend(r.process(dir, 1), 1000); more != 0 {
		t.Fatalf("%d were granted anew", more)
	}
}
