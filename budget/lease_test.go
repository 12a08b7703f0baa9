package budget_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// awayStore is a store that may be out of reach, and counts what it is asked.
type awayStore struct {
	driver.Store
	away, deaf              atomic.Bool // deaf: decisions are made, and their answers are lost
	hangs                   atomic.Bool // looks and settlements get no answer
	decides, looks, settles atomic.Int64
}

func (s *awayStore) gone() error {
	if s.away.Load() {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrNotCharged)
	}
	return nil
}

func (s *awayStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	s.decides.Add(1)
	if err := s.gone(); err != nil {
		return driver.Decisions{}, err
	}
	decided, err := s.Store.Decide(ctx, b)
	if s.deaf.Load() {
		return driver.Decisions{}, driver.ErrUnavailable
	}
	return decided, err
}

func (s *awayStore) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	s.settles.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := s.gone(); err != nil {
		return nil, err
	}
	finished, err := s.Store.Finish(ctx, f)
	if s.deaf.Load() {
		return nil, driver.ErrUnavailable
	}
	return finished, err
}

func (s *awayStore) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	s.looks.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return driver.View{}, ctx.Err()
	}
	if err := s.gone(); err != nil {
		return driver.View{}, err
	}
	return s.Store.Look(ctx, l)
}

// leases is a world of one limit, in which a and b stand for two processes.
type leases struct {
	t     *testing.T
	store *awayStore // a's
	a, b  *budget.Budget
}

// call costs a unit.
var videos = budget.Call{Operation: "videos.list"}

func newLeases(t *testing.T, spec budget.Spec) *leases {
	t.Helper()
	shared := memstore.New(clock)
	w := &leases{t: t, store: &awayStore{Store: shared}}
	w.a = must.Get(budget.New(w.store, spec))(t)
	w.b = must.Get(budget.New(shared, spec))(t)
	return w
}

// oneLimit is a budget of one limit on all operations.
func oneLimit(most int64, window limit.Window) budget.Spec {
	return budget.Spec{
		Name:   "youtube/key1",
		Limits: []limit.Limit{{Name: "limit", Limit: most, Counts: limit.CountUnits, Window: window}},
		Costs:  map[string]budget.Cost{"videos.list": {Units: 1}},
	}
}

func minute(most int64) budget.Spec { return oneLimit(most, limit.RollingWindow(time.Minute)) }

func (w *leases) lease(call budget.Call, units int64, span time.Duration) *budget.Lease {
	w.t.Helper()
	return must.Get(w.a.Lease(w.t.Context(), call, units, span))(w.t)
}

// used is what the ledger counts in the first limit.
func (w *leases) used() int64 {
	w.t.Helper()
	return must.Get(w.b.Status(w.t.Context()))(w.t).Limits[0].Used
}

// is checks what the ledger counts.
func (w *leases) is(used int64, about ...any) {
	w.t.Helper()
	check.Equal(w.t, w.used(), used, append([]any{"used"}, about...)...)
}

// most takes single units until that fails.
func most(t *testing.T, l *budget.Lease) (taken int64, err error) {
	for {
		if err = l.Take(t.Context(), 1); err != nil {
			return taken, err
		}
		taken++
	}
}

// after lets d pass, and the goroutines of the bubble do what is due by then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLeaseChargesBeforeItHandsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		call := videos
		call.Labels = budget.Labels{Job: "hot", Region: "US"}
		l := w.lease(call, 100, 10*time.Second)
		w.is(100, "before any take")
		for range 70 {
			must.Do(t, l.Take(t.Context(), 1))
		}
		check.Equal(t, w.store.decides.Load(), 1, "decisions for 70 takes")
		receipt := l.Receipt()
		if receipt.Units != 100 || receipt.Remaining != 900 || receipt.Limit != "limit" || receipt.Source != budget.SourceStore {
			t.Errorf("receipt %+v", receipt)
		}
		must.Do(t, l.Take(t.Context(), 0))
		check.Is(t, l.Take(t.Context(), -1), budget.ErrTooManyUnits)
		must.Do(t, l.Close(t.Context()))
		w.is(70, "after Close")
		spent := must.Get(w.b.Spent(t.Context(), budget.ByJob, time.Minute))(t)
		if len(spent.Rows) != 1 || spent.Rows[0].Name != "hot" || spent.Rows[0].Units != 70 {
			t.Errorf("spent %+v", spent.Rows)
		}
		check.Is(t, l.Take(t.Context(), 1), budget.ErrClosed)
		must.Do(t, l.Close(t.Context()))
	})
}

func TestLeaseRefusesWhatItCannotCount(t *testing.T) {
	spec := minute(100)
	spec.Costs["search.list"], spec.Costs["upload"] = budget.Cost{Units: 10}, budget.Cost{Units: 1}
	spec.Limits = append(spec.Limits,
		limit.Limit{Name: "searches", Limit: 5, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Minute), Operations: []string{"search.list"}},
		limit.Limit{Name: "uploads", Limit: 5, Counts: limit.CountCalls, Window: limit.ConcurrentWindow(), Operations: []string{"upload"}})
	w := newLeases(t, spec)
	one := int64(1)
	for name, c := range map[string]struct {
		call  budget.Call
		units int64
		span  time.Duration
		want  error
		says  string
	}{
		"a limit on calls":             {budget.Call{Operation: "search.list"}, 10, time.Second, budget.ErrInvalid, "limit searches counts calls"},
		"a limit on open reservations": {budget.Call{Operation: "upload"}, 10, time.Second, budget.ErrInvalid, "limit uploads counts open reservations"},
		"an id":                        {budget.Call{Operation: "videos.list", ID: "a"}, 10, time.Second, budget.ErrInvalid, "leave them out"},
		"units of the call":            {budget.Call{Operation: "videos.list", Units: &one}, 10, time.Second, budget.ErrInvalid, "leave them out"},
		"no units":                     {videos, 0, time.Second, budget.ErrTooManyUnits, "use 1 to"},
		"no span":                      {videos, 1, 0, budget.ErrInvalid, "a span of 0s"},
		"a long span":                  {videos, 1, budget.MaxLease + 1, budget.ErrInvalid, "use 1µs to 24h"},
		"no price":                     {budget.Call{Operation: "x"}, 1, time.Second, budget.ErrUnknownOperation, "give \"x\" a cost"},
		"more than the limit":          {videos, 101, time.Second, budget.ErrNeverFits, "exceed limit limit"},
	} {
		_, err := w.a.Lease(t.Context(), c.call, c.units, c.span)
		check.Is(t, err, c.want, name)
		check.Contains(t, fmt.Sprint(err), c.says, name)
	}
	w.is(0)
}

// With a quarter of the units left the lease is renewed in the background. The rest of the
// old charge goes back.
func TestLeaseIsRenewedWhenLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		l := w.lease(videos, 100, 30*time.Second)
		must.Do(t, l.Take(t.Context(), 75))
		synctest.Wait()
		check.Equal(t, w.store.decides.Load(), 1, "with a quarter left")
		must.Do(t, l.Take(t.Context(), 1))
		synctest.Wait()
		w.is(176, "76 taken, and 100 to hand out")
		check.Equal(t, w.store.decides.Load(), 2, "with less")
		must.Do(t, l.Take(t.Context(), 100))
		must.Do(t, l.Take(t.Context(), 30)) // waits for the renewal
		must.Do(t, l.Take(t.Context(), 300))
		must.Do(t, l.Close(t.Context()))
		w.is(506)
	})
}

// A lease ends with its span: used, it is renewed a quarter before; unused, it goes back.
func TestLeaseEndsWithItsSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		l := w.lease(videos, 100, 20*time.Second)
		must.Do(t, l.Take(t.Context(), 1))
		after(15*time.Second - 1)
		check.Equal(t, w.store.decides.Load(), 1, "before three quarters of the span")
		after(1)
		check.Equal(t, w.store.decides.Load(), 2, "then")
		w.is(101)
		after(20*time.Second - 1)
		w.is(101, "before the end")
		after(1)
		w.is(1, "nobody took anything from the second charge")
		after(time.Hour)
		check.Equal(t, w.store.decides.Load(), 2, "no further charge")
		looked := w.store.looks.Load()
		after(time.Hour)
		check.Equal(t, w.store.looks.Load(), looked, "looks of a lease without units")
		must.Do(t, l.Take(t.Context(), 2))
		w.is(100, "renewed by the next take")
		must.Do(t, l.Close(t.Context()))
		w.is(2)
	})
}

// Takes end with the span, also while the lease waits for an answer of the store.
func TestLeaseEndsWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		l := w.lease(videos, 100, 500*time.Millisecond)
		w.store.hangs.Store(true)
		after(500*time.Millisecond - 1)
		must.Do(t, l.Take(t.Context(), 0))
		after(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.Is(t, l.Take(ctx, 0), context.DeadlineExceeded)
		w.store.hangs.Store(false)
		must.Do(t, l.Close(t.Context()))
	})
}

// Takes get units down to the last, and then the refusal that a charge of the same units
// would get.
func TestLeaseTakesTheLastUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(150))
		l := w.lease(videos, 100, 10*time.Second)
		after(5 * time.Second)
		taken, err := most(t, l)
		check.Equal(t, taken, 150, "takes")
		if n := w.store.decides.Load(); n > 7 { // the lease and 50, a refused renewal of each, 100 that 50 followed, and two of the last take
			t.Errorf("that took %d decisions", n)
		}
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("error %v", err)
		}
		_, plain := w.b.Charge(t.Context(), videos)
		var other *budget.RefusedError
		must.Equal(t, errors.As(plain, &other), true, plain)
		other.ID = ""
		check.Equal(t, err.Error(), plain.Error(), "the refusal")
		if refused.ID != "" || !refused.NotCharged || refused.Units != 1 || !refused.RetryAt.Equal(other.RetryAt) {
			t.Errorf("refused with %+v, want %+v", refused, other)
		}
		w.is(150)
		after(refused.RetryAfter)
		must.Do(t, l.Take(t.Context(), 1))
		must.Do(t, l.Close(t.Context()))
	})
}

// A floor holds for all that a lease charges, and what is guaranteed to others stays theirs.
func TestLeaseKeepsFloorsAndShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := minute(1000)
		spec.Limits[0].Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 300}}
		w := newLeases(t, spec)
		call := videos
		call.Labels.Job, call.Floor = "hot", 450
		l := w.lease(call, 80, 50*time.Second)
		taken, err := most(t, l)
		check.Equal(t, taken, 550, "takes beside a floor")
		if n := w.store.decides.Load(); n > 18 { // for each of seven leases at most one that is refused
			t.Errorf("that took %d decisions", n)
		}
		check.Contains(t, fmt.Sprint(err), "450 must remain")
		must.Do(t, l.Close(t.Context()))
		call.Floor = 0
		l = w.lease(call, 80, 50*time.Second)
		taken, err = most(t, l)
		check.Equal(t, taken, 150, "takes beside a guarantee")
		check.Contains(t, fmt.Sprint(err), "300 are kept for nightly")
		call.Labels.Job = "nightly"
		own := w.lease(call, 80, 50*time.Second)
		taken, _ = most(t, own)
		check.Equal(t, taken, 300, "takes of the share")
		must.Do(t, l.Close(t.Context()))
		must.Do(t, own.Close(t.Context()))
		w.is(1000)
	})
}

// What stops a lease in another process stops it here within a second, and only that.
func TestLeaseStopsWithinASecond(t *testing.T) {
	spec := minute(1000)
	spec.Costs["search.list"] = budget.Cost{Units: 1}
	spec.Limits = append(spec.Limits, limit.Limit{Name: "search", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute), Operations: []string{"search.list"}},
		limit.Limit{Name: "each", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute), PerOperation: true},
		limit.Limit{Name: "watched", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute), Observe: true})
	lock := func(name, operation string) func(*leases) error {
		return func(w *leases) error {
			_, err := w.b.Lock(w.t.Context(), budget.LockOrder{Limit: name, Operation: operation, Until: budget.Until{After: time.Minute}, ByHand: true})
			return err
		}
	}
	fence := func(job string, number int64) func(*leases) error {
		return func(w *leases) error { return w.b.Fence(w.t.Context(), job, number) }
	}
	for name, c := range map[string]struct {
		stop func(*leases) error
		want error
	}{
		"a lock of the budget":                {lock("", ""), budget.ErrLocked},
		"a lock of the limit":                 {lock("limit", ""), budget.ErrLocked},
		"a lock of the operation's limit":     {lock("each", "videos.list"), budget.ErrLocked},
		"a lock of another limit":             {lock("search", ""), nil},
		"a lock of a limit that observes":     {lock("watched", ""), nil},
		"a lock of another operation's limit": {lock("each", "search.list"), nil},
		"a fence":                             {fence("hot", 3), budget.ErrFenced},
		"another pass's fence":                {fence("hot", 4), nil},
		"another job's fence":                 {fence("cold", 3), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeases(t, spec)
				call := videos
				call.Labels.Job, call.Fence = "hot", 3
				l := w.lease(call, 500, time.Minute)
				var last time.Time
				var failed error
				must.Do(t, c.stop(w))
				stopped := time.Now()
				for failed == nil && time.Since(stopped) < 3*time.Second {
					if failed = l.Take(t.Context(), 1); failed == nil {
						last = time.Now()
					}
					after(10 * time.Millisecond)
				}
				check.Is(t, failed, c.want)
				if refused := (*budget.RefusedError)(nil); errors.As(failed, &refused) {
					check.Equal(t, refused.Units, 1, "units in the refusal")
				}
				if stops := c.want != nil; stops != (last.Sub(stopped) <= time.Second) {
					t.Errorf("the last take is %s after it was to stop", last.Sub(stopped))
				}
				must.Do(t, l.Close(t.Context()))
				w.is(int64(last.Sub(stopped)/(10*time.Millisecond)) + 1)
			})
		})
	}
}

// A reset forgets the lease's charge: what it had left must not be handed out beside the new
// ledger's units. That holds whatever windows show the reset.
func TestLeaseStopsAfterAReset(t *testing.T) {
	day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	for name, window := range map[string]limit.Window{
		"rolling": limit.RollingWindow(time.Minute), "short": limit.RollingWindow(100 * time.Millisecond), "calendar": limit.CalendarWindow(day),
		"coarse": limit.CoarseWindow(time.Hour, time.Minute), "bucket": limit.BucketWindow(must.Get(limit.NewRefill(1, time.Hour))(t)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				after(time.Hour)
				w := newLeases(t, oneLimit(100, window))
				l := w.lease(videos, 100, time.Minute)
				must.Do(t, l.Take(t.Context(), 10))
				after(2 * time.Second)
				must.Get(driver.Apply(t.Context(), w.store, driver.Reset{Budget: "youtube/key1"}))(t)
				must.Get(w.b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(60)}))(t)
				after(time.Second)
				taken, err := most(t, l)
				check.Is(t, err, budget.ErrExhausted)
				if window.Length == 100_000 { // the 60 have left it
					check.Equal(t, taken, 100, "units")
				} else {
					check.Equal(t, taken, 40, "what fits beside the other's 60")
				}
				must.Do(t, l.Close(t.Context()))
			})
		})
	}
}

// Without the store's answer takes end within a second, and go on with the same charge once
// it answers.
func TestLeaseWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		l := w.lease(videos, 100, 50*time.Second)
		w.store.away.Store(true)
		began := time.Now()
		for l.Take(t.Context(), 1) == nil {
			after(10 * time.Millisecond)
		}
		if since := time.Since(began); since != 900*time.Millisecond {
			t.Errorf("takes end after %s, want 0.9 s after the last answer", since)
		}
		err := l.Take(t.Context(), 1)
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, budget.ErrUnavailable) || !refused.NotCharged || refused.ID != "" {
			t.Errorf("error %+v", err)
		}
		check.Contains(t, fmt.Sprint(err), "its policy is closed")
		w.store.away.Store(false)
		after(2 * time.Second) // the old charge is settled
		w.is(90)
		must.Do(t, l.Take(t.Context(), 1))
		w.is(190)
		w.store.away.Store(true)
		err = l.Close(t.Context())
		check.Is(t, err, budget.ErrUnavailable)
		check.Contains(t, fmt.Sprint(err), "its units stay charged")
		w.store.away.Store(false)
		after(50*time.Second + time.Minute - 3*time.Second)
		w.is(100, "until the end of its lease and the window after it")
		after(3 * time.Second)
		w.is(0)
	})
}

// A charge of the lease whose answer was lost is released: nobody takes from it.
func TestLeaseReleasesWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(1000))
		l := w.lease(videos, 100, time.Hour)
		w.store.deaf.Store(true)
		must.Do(t, l.Take(t.Context(), 90)) // a renewal follows
		synctest.Wait()
		w.is(100, "the renewal was made, and released")
		after(time.Minute)
		check.Is(t, l.Take(t.Context(), 50), budget.ErrUnavailable)
		check.Is(t, l.Take(t.Context(), 50), budget.ErrUnavailable)
		w.store.deaf.Store(false)
		must.Do(t, l.Take(t.Context(), 50))
		synctest.Wait() // the older charge is settled after that take
		w.is(190)
		must.Do(t, l.Close(t.Context()))
		w.is(140)
	})
}

// A process that dies leaves its units charged until the lease's end and the window.
func TestLeaseOfADeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(100))
		l := w.lease(videos, 60, 10*time.Second)
		must.Do(t, l.Take(t.Context(), 20))
		w.store.away.Store(true) // nothing of it reaches the store any more
		_ = l.Close(t.Context())
		_, err := w.b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(41)})
		var refused *budget.RefusedError
		must.Equal(t, errors.As(err, &refused), true, err)
		check.Equal(t, refused.RetryAfter, 70*time.Second, "the wait")
		after(70*time.Second - time.Microsecond)
		w.is(60)
		after(time.Microsecond)
		w.is(0)
	})
}

// A lease ends before a calendar's reset: what is taken before counts in that period alone.
func TestLeaseAtAReset(t *testing.T) {
	for _, guard := range []time.Duration{0, 5 * time.Second} {
		t.Run(fmt.Sprint(guard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				window := limit.CalendarWindow(must.Get(limit.NewCalendar("hour", "UTC", 0))(t))
				window.Guard = guard.Microseconds()
				w := newLeases(t, oneLimit(1000, window))
				reset := time.Now().Truncate(time.Hour).Add(time.Hour)
				time.Sleep(time.Until(reset.Add(-30 * time.Second)))
				l := w.lease(videos, 100, time.Hour)
				must.Do(t, l.Take(t.Context(), 70))
				after(time.Until(reset.Add(-guard - 60*time.Millisecond)))
				w.is(170, "renewed, a quarter before the end")
				must.Do(t, l.Take(t.Context(), 3))
				after(time.Until(reset.Add(-guard - 20*time.Millisecond)))
				w.is(73, "settled before the reset")
				must.Do(t, l.Take(t.Context(), 5)) // waits for the reset, or the guard before it
				if since := time.Until(reset.Add(-guard)); since > 0 || since < -time.Millisecond {
					t.Errorf("the take was made %s before the reset", since)
				}
				after(time.Until(reset.Add(guard)))
				w.is(100, "what was charged since")
				must.Do(t, l.Close(t.Context()))
				w.is(5, "what was taken since")
			})
		})
	}
}

// Right before a reset a lease waits for it, as long as its caller does.
func TestLeaseRightBeforeAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, oneLimit(1000, limit.CalendarWindow(must.Get(limit.NewCalendar("hour", "UTC", 0))(t))))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 50*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := w.b.Lease(ctx, videos, 100, time.Minute)
		check.Is(t, err, context.DeadlineExceeded)
		check.Equal(t, time.Since(began), 20*time.Millisecond, "the wait")
		w.is(0)
	})
}

// What a dead process's lease has charged does not count after a calendar's reset.
func TestLeaseOfADeadProcessAtAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, oneLimit(1000, limit.CalendarWindow(must.Get(limit.NewCalendar("hour", "UTC", 0))(t))))
		time.Sleep(30 * time.Minute)
		l := w.lease(videos, 100, 2*time.Hour)
		w.store.away.Store(true)
		_ = l.Close(t.Context())
		after(30*time.Minute - time.Second)
		w.is(100, "before the reset")
		after(time.Second)
		w.is(0, "after it")
	})
}

// In observe mode nothing stops a call.
func TestLeaseInObserveMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := minute(10)
		spec.Observe = true
		w := newLeases(t, spec)
		l := w.lease(videos, 100, 10*time.Second)
		must.Get(w.b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}, ByHand: true}))(t)
		for i := range 300 {
			w.store.away.Store(i >= 100 && i < 200)
			must.Do(t, l.Take(t.Context(), 1))
			after(100 * time.Millisecond)
		}
		must.Do(t, l.Close(t.Context()))
		// In 0.9 s after the store goes takes are of units that it has charged; in 0.9 s after
		// it is back, of units that it has not.
		if used := w.used(); used < 200-9 || used > 200+9 {
			t.Errorf("%d are used: want the 200 takes while the store answered, give or take 9", used)
		}
	})
}

// A take that gives up takes nothing, and one that need not wait ignores its context's end.
func TestLeaseTakeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(100))
		l := w.lease(videos, 60, 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must.Do(t, l.Take(ctx, 1))
		check.Is(t, l.Take(ctx, 60), context.Canceled)
		must.Do(t, l.Close(t.Context()))
		w.is(1)
	})
}

// Close waits as long as its context; the lease still tries to settle.
func TestLeaseCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeases(t, minute(100))
		l := w.lease(videos, 60, time.Minute)
		must.Do(t, l.Take(t.Context(), 7))
		w.store.hangs.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		check.Is(t, err, context.DeadlineExceeded)
		check.Contains(t, fmt.Sprint(err), "its units stay charged")
		check.Is(t, l.Take(t.Context(), 1), budget.ErrClosed)
		w.is(60)
		check.Is(t, l.Close(t.Context()), budget.ErrUnavailable)
	})
}

func TestLeaseErrorsHaveNoID(t *testing.T) {
	w := newLeases(t, minute(100))
	l := w.lease(videos, 60, 10*time.Second)
	err := l.Take(t.Context(), 101)
	check.Is(t, err, budget.ErrNeverFits)
	if strings.Contains(err.Error(), l.Receipt().ID) {
		t.Errorf("error %v", err)
	}
	must.Do(t, l.Close(t.Context()))
}
