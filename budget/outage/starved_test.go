package outage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// distantStore does not answer some of its calls in time.
type distantStore struct {
	driver.Store
	late    int   // how many of the first
	but     int   // one of them that it answers, from 1
	answers bool  // it answers something meanwhile, as one does that is far away
	fails   error // of the calls after them
	calls   int
	heard   int64
	longest time.Duration // the last timeout that it was given
	told    int64         // the caller's clock at the last finish, µs
	trip    time.Duration // of a connection that it makes; 0: it is known already
}

func (s *distantStore) Distance() (near time.Duration, answers int64) {
	if s.trip > 0 && s.calls == 0 {
		return 0, s.heard
	}
	return cmp.Or(s.trip, 100*time.Millisecond), s.heard
}

func (s *distantStore) WithTimeout(ctx context.Context, timeout time.Duration) context.Context {
	s.longest = timeout
	return ctx
}

func (s *distantStore) ask(ctx context.Context) error {
	switch s.calls++; {
	case s.calls == s.but:
		return nil
	case s.calls > s.late:
		return s.fails
	case s.answers:
		s.heard++
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *distantStore) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	if err := s.ask(ctx); err != nil {
		return driver.View{}, err
	}
	return s.Store.Look(ctx, look)
}

func (s *distantStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if err := s.ask(ctx); err != nil {
		return driver.Decisions{}, err
	}
	return s.Store.Decide(ctx, batch)
}

func (s *distantStore) Spent(ctx context.Context, _ driver.SpentQuery) (driver.Spent, error) {
	return driver.Spent{}, s.ask(ctx)
}

func (s *distantStore) History(ctx context.Context, _ driver.HistoryQuery) (driver.History, error) {
	return driver.History{}, s.ask(ctx)
}

func (s *distantStore) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	s.told = f.Now
	if err := s.ask(ctx); err != nil {
		return nil, err
	}
	return s.Store.Finish(ctx, f)
}

// distant opens a host on a store that is 100 ms away, in fake time, with a timeout of a second.
func distant(t *testing.T, inner *distantStore, more func(*outage.Options)) *outage.Store {
	t.Helper()
	inner.Store = memstore.New(func() int64 { return time.Now().UnixMicro() })
	o := outage.Options{Dir: t.TempDir(), Timeout: time.Second, Clocks: newWorldInFakeTime(t).clocks}
	if more != nil {
		more(&o)
	}
	store := outage.New(inner, o)
	outage.SetTimes(store, func() (ran, waited, pressed time.Duration) { return 0, 0, 0 })
	t.Cleanup(func() { check.NoError(t, store.Close()) })
	return store
}

// A store that has answered, or that a starved process could not hear, is asked again; one that is
// silent is out of reach at once, and whatever it is, the call ends and the host knows.
func TestOnlyTheStoresPartCounts(t *testing.T) {
	refused := fmt.Errorf("connection refused: %w", driver.ErrUnavailable)
	for name, c := range map[string]struct {
		late            int
		answers, shards bool
		ran, waited     time.Duration // in each second
		pressed         time.Duration // in each second
		fails           error
		calls           int
		opened          bool
		most            time.Duration // 0: eight timeouts
	}{
		"silent":                          {late: 100, calls: 1, opened: true},
		"far away":                        {late: 2, answers: true, calls: 3},
		"starved":                         {late: 4, waited: time.Second / 2, calls: 5, most: 40 * time.Second},
		"beside a starved server":         {late: 2, pressed: time.Second / 2, calls: 3},
		"beside one, and silent":          {late: 100, pressed: time.Second / 2, calls: 3, opened: true},
		"a little pressed":                {late: 100, pressed: time.Second / 3, calls: 1, opened: true},
		"too far away":                    {late: 100, answers: true, calls: 3, opened: true},
		"starved, and silent":             {late: 100, waited: time.Second / 2, calls: 7, opened: true, most: 40 * time.Second},
		"starved, and it answers":         {late: 100, answers: true, waited: time.Second / 2, calls: 7, most: 40 * time.Second},
		"busy, and silent":                {late: 100, ran: 8 * time.Second, waited: time.Second, calls: 1, opened: true},
		"another server answers":          {late: 100, answers: true, shards: true, calls: 1, opened: true},
		"far away, then refuses at once":  {late: 1, answers: true, fails: refused, calls: 2, opened: true},
		"it answers as always":            {calls: 1},
		"it refuses at once, and starved": {waited: time.Second / 2, fails: refused, calls: 1, opened: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &distantStore{late: c.late, answers: c.answers, fails: c.fails}
				store := distant(t, inner, func(o *outage.Options) { o.PerBudget = c.shards })
				began := time.Now()
				outage.SetTimes(store, func() (ran, waited, pressed time.Duration) {
					seconds := time.Since(began).Seconds()
					return time.Duration(seconds * float64(c.ran)), time.Duration(seconds * float64(c.waited)), time.Duration(seconds * float64(c.pressed))
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, driver.ErrUnavailable)
				defer cancel()
				_, err := store.Look(ctx, driver.Look{Budget: "up/key1", Now: time.Now().UnixMicro()})
				check.Equal(t, inner.calls, c.calls, "calls")
				check.Equal(t, err != nil, c.late >= c.calls || c.fails != nil, "failed:", err)
				most := cmp.Or(c.most, 8*time.Second)
				check.Equal(t, time.Since(began) <= most, true, "at most", most, "of", time.Since(began))
				check.Equal(t, c.calls == 1 || inner.longest == time.Second<<(c.calls-1), true, "each try has twice the time:", inner.longest)
				_, out := store.OutOfReach()
				check.Equal(t, out, c.opened, "the breaker is open")
			})
		})
	}
}

// A far store is heard when it lets a process connect; a server that hangs nearby lets it too, at once.
func TestConnectingToAFarStore(t *testing.T) {
	for trip, tries := range map[time.Duration]int{200 * time.Millisecond: 2, time.Millisecond: 1} {
		synctest.Test(t, func(t *testing.T) {
			inner := &distantStore{late: 1, trip: trip}
			store := distant(t, inner, nil)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, driver.ErrUnavailable)
			defer cancel()
			_, err := store.Look(ctx, driver.Look{Budget: "up/key1", Now: time.Now().UnixMicro()})
			check.Equal(t, inner.calls, tries, "tries", trip)
			check.Equal(t, err == nil, tries == 2, "answered", err)
		})
	}
}

// A question of many parts has the time of all tries. If it takes longer, the store is out of reach only
// if it answered nothing.
func TestAReadThatTakesTooLong(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			inner := &distantStore{late: 2, answers: answers}
			store := distant(t, inner, nil)
			for what, read := range map[string]func(ctx context.Context) error{
				"spent": func(ctx context.Context) error {
					_, err := store.Spent(ctx, driver.SpentQuery{Budget: "up/key1"})
					return err
				},
				"history": func(ctx context.Context) error {
					_, err := store.History(ctx, driver.HistoryQuery{Budget: "up/key2"})
					return err
				},
			} {
				inner.calls, inner.longest = 0, 0
				ctx, cancel := context.WithTimeoutCause(t.Context(), 8*time.Second, driver.ErrUnavailable)
				check.Is(t, read(ctx), context.DeadlineExceeded, what)
				cancel()
				check.Equal(t, inner.longest, 8*time.Second, what, "has")
				_, out := store.OutOfReach()
				check.Equal(t, out, !answers, what, "opens the breaker")
				if !answers {
					break // the other is not asked any more
				}
			}
		})
	}
}

// A caller that gives up itself is not kept, and shows nothing of the store, in whichever try.
func TestACallersOwnEnd(t *testing.T) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"a deadline in the first try": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 700*time.Millisecond)
		},
		"a deadline in the second": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 1700*time.Millisecond)
		},
		"cancelled in the second": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(1700*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &distantStore{late: 3, answers: true}
				store := distant(t, inner, nil)
				spec := newWorldInFakeTime(t).spec
				b := must.Get(budget.New(store, spec))(t)
				began := time.Now()
				ctx, cancel := end(t.Context())
				defer cancel()
				_, err := b.Charge(ctx, budget.Call{Operation: "list"})
				check.Equal(t, err != nil && errors.Is(err, ctx.Err()), true, "the call:", err)
				check.Equal(t, time.Since(began) < 2*time.Second, true, "kept for", time.Since(began))
				_, out := store.OutOfReach()
				check.Equal(t, out, false, "the breaker is open")
				inner.late = 0
				check.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, int64(0), "used")
			})
		})
	}
}

// A caller in a flight that is asked again is not charged past its own deadline.
func TestAFlightKeepsItsCallersDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &distantStore{late: 4, but: 2, answers: true}
		store := distant(t, inner, nil)
		b := must.Get(budget.New(store, newWorldInFakeTime(t).spec))(t)
		var all sync.WaitGroup
		charge := func(ctx context.Context, want error) {
			all.Go(func() {
				_, err := b.Charge(ctx, budget.Call{Operation: "list"})
				check.Is(t, err, want)
			})
			synctest.Wait()
		}
		charge(t.Context(), nil) // alone: its second try is answered, after 1.3 s
		hasty, cancel := context.WithTimeout(t.Context(), 3300*time.Millisecond)
		defer cancel()
		charge(hasty, context.DeadlineExceeded) // in the flight after it, whose third try is answered
		charge(t.Context(), nil)
		all.Wait()
		check.Equal(t, inner.calls, 5, "tries")
		check.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, int64(2), "used")
	})
}

// Each try of a settlement knows how much of its time is left. If an earlier try may have been heard,
// a late one does not show that nothing was recorded: the settlement is written down.
func TestASettlementKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &distantStore{late: 2, answers: true}
		store := distant(t, inner, nil)
		now := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, driver.ErrUnavailable)
		defer cancel()
		done, err := driver.FinishOne(ctx, store, "up/key1", now.UnixMicro(), driver.Finish{ID: "a", Deadline: now.Add(2 * time.Second)})
		check.NoError(t, err)
		check.Equal(t, time.Duration(inner.told-now.UnixMicro())*time.Microsecond, 3600*time.Millisecond, "the caller's clock at the third try, after")
		check.Equal(t, done.Result, driver.Settled, "its result")
	})
}

// A call that a loss holds back is charged within the host's part also by a later try.
func TestWithinThePartAtTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuin(t)
		inner := &distantStore{Store: r.store, answers: true}
		idle, busy := r.processOn(inner, t.TempDir(), 2), r.host(2)
		r.spend(idle, 10)
		r.spend(busy, 1000)
		r.flush()
		inner.calls, inner.late = 0, 1
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, driver.ErrUnavailable)
		defer cancel()
		item := driver.Item{ID: "part", Operation: "list", Units: 1}
		got := must.Get(idle.Decide(ctx, driver.Batch{Budget: "up/key1", Now: r.clock(), Limits: r.limits, Items: []driver.Item{item}}))(t)
		check.Equal(t, got.Items[0].Result, driver.Granted, "the call")
		check.Equal(t, inner.calls > 2, true, "tries")
		check.NoError(t, errors.Join(idle.Close(), busy.Close()))
	})
}
