package outage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// each limits each operation to 100 of 110, as per = "operation" does: a call brings
// the limits of its own operation alone.
func (r *ruin) each(s driver.Store, operation string, units int64) driver.Decision {
	r.t.Helper()
	atomic.AddInt64(&r.now, 1_000_000)
	r.n++
	d := must.Get(s.Decide(r.t.Context(), driver.Batch{
		Budget: "up/key1", Now: r.now, Limits: eachLimit(operation), Items: []driver.Item{{ID: fmt.Sprint("id", r.n), Operation: operation, Units: units}},
	}))(r.t)
	return d.Items[0]
}

func eachLimit(operation string) []limit.Limit {
	return []limit.Limit{{
		Name: "each:" + operation, Operations: []string{operation}, Quota: 110, Headroom: 10, Limit: 100,
		Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour),
	}}
}

// A host has reported a loss once all that it knew is recorded, of limits too that its
// first call does not bring.
func TestAHostReportsAllLimits(t *testing.T) {
	r := newRuin(t)
	idle, busy := r.host(2), r.host(2)
	for _, s := range []driver.Store{idle, busy} {
		r.each(s, "x", 1)
		r.each(s, "y", 1)
	}
	must.Equal(t, r.each(busy, "y", 98).Result, driver.Granted)
	r.flush()
	r.each(idle, "x", 1)
	r.each(busy, "x", 1)
	spent := 100
	for range 50 { // within the 60 s
		if d := r.each(idle, "y", 1); d.Result == driver.Granted {
			spent++
		}
	}
	if spent > 110 {
		t.Fatalf("%d of a quota of 110 of y: its spend was not known yet", spent)
	}
	r.each(busy, "y", 1)
	if d := r.each(idle, "y", 1); d.Result != driver.Refused || d.Recovering {
		t.Fatalf("%+v once both have reported all", d)
	}
}

// slowReply holds an answer of the store back.
type slowReply struct {
	driver.Store
	given, goes chan struct{}
}

func (s *slowReply) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	d, err := s.Store.Decide(ctx, b)
	close(s.given)
	<-s.goes
	return d, err
}

// overlap makes a call whose answer comes after what happens meanwhile.
func (r *ruin) overlap(call func() driver.Decision, meanwhile func()) {
	r.t.Helper()
	slow := &slowReply{r.store.inner(), make(chan struct{}), make(chan struct{})}
	r.store.replace(slow)
	done := make(chan driver.Decision)
	go func() { done <- call() }()
	<-slow.given
	r.store.replace(slow.Store)
	meanwhile()
	close(slow.goes)
	if d := <-done; d.Result != driver.Granted {
		r.t.Fatalf("%+v", d)
	}
}

// What an answer told stays known, whichever order answers come in.
func TestAnswersInAnotherOrder(t *testing.T) {
	t.Run("of a ledger that was lost and recovered meanwhile", func(t *testing.T) {
		r := newRuin(t)
		s := r.host(1)
		r.spend(s, 50)
		r.overlap(func() driver.Decision { return r.decide(s, 40) }, func() {
			r.flush()
			r.used(s)
		})
		if more, _ := r.spend(s, 1000); more != 10 {
			t.Fatalf("%d more after 90 of 100", more)
		}
	})
	t.Run("behind that of another operation", func(t *testing.T) {
		r := newRuin(t)
		s := r.host(1)
		r.each(s, "x", 1)
		r.overlap(func() driver.Decision { return r.each(s, "x", 90) }, func() { r.each(s, "y", 1) })
		r.each(s, "y", 1)
		r.flush()
		must.Equal(t, r.each(s, "x", 10).Result, driver.Refused, "10 more after 91 of 100")
		must.Equal(t, r.each(s, "x", 9).Result, driver.Granted, "9 more after 91 of 100")
	})
}

// diesOnceRecorded goes away as soon as it has recorded what a host spent alone.
type diesOnceRecorded struct {
	driver.Store
	dead bool
}

func (s *diesOnceRecorded) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if s.dead {
		return driver.Decisions{}, fmt.Errorf("connection reset: %w", driver.ErrUnavailable)
	}
	d, err := s.Store.Decide(ctx, b)
	s.dead = len(b.Items) > 0 && b.Items[0].Recorded
	return d, err
}

// The host remembers what it recorded after an outage, also when the store goes away again
// before it decides anything else.
func TestRecordedIsRememberedThroughTheNextOutage(t *testing.T) {
	r := newRuin(t)
	s := r.host(1)
	r.spend(s, 90)
	r.store.gone.Store(true)
	open := func(id string) (driver.Decisions, error) {
		atomic.AddInt64(&r.now, 5_000_000)
		return s.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: id, Operation: "list", Units: 1, OnStoreError: driver.Open}}})
	}
	for i := range 5 {
		must.Equal(t, must.Get(open(fmt.Sprint("alone", i)))(t).Items[0].Result, driver.Granted)
	}
	r.store.gone.Store(false)
	dying := &diesOnceRecorded{Store: r.store.inner()}
	r.store.replace(dying)
	for i := 0; !dying.dead; i++ {
		_, _ = open(fmt.Sprint("probe", i)) // the breaker shuts by one of these
	}
	r.flush()
	view, err := driver.View{}, errors.New("not asked")
	for i := 0; err != nil; i++ {
		atomic.AddInt64(&r.now, 5_000_000)
		if view, err = s.Look(t.Context(), driver.Look{Budget: "up/key1", Now: r.now, Limits: r.limits}); i > 100 {
			t.Fatal(err)
		}
	}
	must.Equal(t, view.Limits[0].Used, 95, "used after the loss; 90 were charged and 5 recorded")
}

// A ledger that lost a part of itself is begun anew by a host that knows of a lock as
// by any other, and the lock stands again.
func TestDamagedBehindALock(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"m", "e", "z:1"} {
		server := redistest.Start(t)
		admin := server.Client()
		spec := budget.Spec{Name: lossBudget, Costs: map[string]budget.Cost{"list": {Units: 1}}, Limits: []limit.Limit{
			{Name: "day", Quota: 1100, Headroom: 100, Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
		}}
		b, _ := redisHost(t, "redis://"+server.Addr, t.TempDir(), spec, patient)
		for range 10 {
			must.Get(b.Charge(t.Context(), budget.Call{Operation: "list"}))(t)
		}
		lock := must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}, Why: "quotaExceeded"}))(t)
		must.Equal(t, must.Get(admin.Del(t.Context(), "quotactl:v1:{"+lossBudget+"}:"+part).Result())(t), 1)
		must.Is(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "list"})), budget.ErrLocked, part, "lost, behind a lock")
		status, err := b.Status(t.Context())
		stands, locked := status.LockOf("")
		if err != nil || status.Limits[0].Used != 10 || !locked || !stands.Until.Equal(lock.Until) {
			t.Fatalf("%s lost: %+v, %v; want 10 used, locked until %s", part, status, err, lock.Until)
		}
	}
}

// leavesWithin goes away once it has charged within the host's part.
type leavesWithin struct {
	driver.Store
	leave context.CancelFunc
}

func (s *leavesWithin) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	d, err := s.Store.Decide(ctx, b)
	if b.WithinPart && err == nil {
		s.leave()
		return driver.Decisions{}, ctx.Err()
	}
	return d, err
}

// A caller that goes away while the host's part is asked for does not know whether it
// is charged.
func TestPartLeftIsUnknown(t *testing.T) {
	r := newRuin(t)
	idle, busy := r.host(2), r.host(2)
	r.spend(idle, 10)
	r.spend(busy, 10)
	r.flush()
	r.used(idle)
	ctx, leave := context.WithCancel(t.Context())
	inner := r.store.inner()
	r.store.replace(&leavesWithin{inner, leave})
	batch := driver.Batch{Budget: "up/key1", Now: r.now, Limits: r.limits, Items: []driver.Item{{ID: "mine", Operation: "list", Units: 1}}}
	d := must.Get(idle.Decide(ctx, batch))(t)
	must.Equal(t, d.Items[0].Result, driver.OutcomeUnknown)
	if d, err := inner.Decide(t.Context(), batch); err != nil || !d.Items[0].Replayed {
		t.Fatalf("it is charged in the store: %+v, %v", d, err)
	}
}

// A lock that was taken off does not come back with a loss to a host that looked in
// between; one that stands keeps its end.
func TestUnlockedStaysUnlocked(t *testing.T) {
	r := newRuin(t)
	other, s := r.host(1), r.host(1)
	r.spend(s, 1)
	until := r.now + time.Hour.Microseconds()
	for _, limit := range []string{"", "day"} {
		must.Get(driver.Apply(t.Context(), other, driver.Lock{Budget: "up/key1", Now: r.now, Limit: limit, Until: until, Most: driver.MaxLock, Why: "by hand", Force: true}))(t)
	}
	if d := r.decide(s, 1); !d.Locked {
		t.Fatalf("%+v", d)
	}
	must.Get(driver.Apply(t.Context(), other, driver.Unlock{Budget: "up/key1", Now: r.now}))(t)
	r.used(s)
	for range 5 {
		r.flush()
		atomic.AddInt64(&r.now, 1_000_000)
		view, err := s.Look(t.Context(), driver.Look{Budget: "up/key1", Now: r.now, Limits: r.limits})
		if err != nil || len(view.Locks) != 1 || view.Locks[0].Limit != "day" || view.Locks[0].Until != until {
			t.Fatalf("%+v, %v; want the lock of day until %d", view.Locks, err, until)
		}
	}
	must.Get(driver.Apply(t.Context(), other, driver.Unlock{Budget: "up/key1", Now: r.now, Limit: "day"}))(t)
	r.used(s)
	r.flush()
	must.Equal(t, r.decide(s, 1).Result, driver.Granted, "behind locks that were taken off")
}

// An older state of the store that lacks a lock, or a report, and nothing else is
// noticed by the next call of the host that made it.
func TestChangesThatAreNoCharge(t *testing.T) {
	for what, change := range map[string]func(*ruin, *outage.Store){
		"a lock": func(r *ruin, s *outage.Store) {
			must.Get(driver.Apply(r.t.Context(), s, driver.Lock{Budget: "up/key1", Now: r.now, Until: r.now + time.Hour.Microseconds(), Most: driver.MaxLock, Why: "by hand"}))(r.t)
		},
		"a report": func(r *ruin, s *outage.Store) {
			report := driver.Report{Budget: "up/key1", Now: r.now, Limits: r.limits, Limit: "day", Used: 100}
			must.Equal(r.t, must.Get(driver.Apply(r.t.Context(), s, report))(r.t).Added, 99)
		},
	} {
		for loss, lose := range map[string]func(r *ruin, kept []byte, path string){
			"put back": func(r *ruin, kept []byte, path string) {
				r.inFile(filepath.Join(r.t.TempDir(), "other.db"))
				must.Do(r.t, os.WriteFile(path, kept, 0o600))
				r.inFile(path)
			},
			"flushed": func(r *ruin, _ []byte, _ string) { r.flush() },
		} {
			t.Run(what+", "+loss, func(t *testing.T) {
				r := newRuin(t)
				path := filepath.Join(t.TempDir(), "q.db")
				r.inFile(path)
				s := r.host(1)
				r.spend(s, 1)
				r.inFile(filepath.Join(t.TempDir(), "other.db")) // closes it
				kept := must.Get(os.ReadFile(path))(t)
				r.inFile(path)
				change(r, s)
				lose(r, kept, path)
				must.Equal(t, r.decide(s, 1).Result, driver.Refused, "once", what, "is lost")
			})
		}
	}
}
