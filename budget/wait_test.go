package budget_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// mostJitter is how much later than the exact instant a waiter may charge.
const mostJitter = 10 * time.Millisecond

func TestWaitChargesWhenItFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		start := time.Now()
		if _, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}); err != nil || time.Since(start) != 0 {
			t.Fatalf("what fits waited %s: %v", time.Since(start), err)
		}
		receipt := must.Get(b.Wait(t.Context(), budget.Call{Operation: "videos.list"}))(t)
		if late := receipt.At.Sub(start.Add(time.Minute)); late < 0 || late > mostJitter {
			t.Fatalf("charged %s after the instant it fits", late)
		}
		must.Is(t, check.Err(b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(11)})), budget.ErrNeverFits, "a wait for what never fits")
	})
}

func TestWaitFailsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}))(t)
		start := time.Now()
		wait := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := b.Wait(ctx, budget.Call{Operation: "videos.list"})
			return err
		}
		var refused *budget.RefusedError
		err := wait(time.Minute - time.Microsecond)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || time.Since(start) != 0 {
			t.Fatalf("after %s: %v", time.Since(start), err)
		}
		must.Equal(t, refused.RetryAfter, time.Minute, "refused")
		must.Equal(t, refused.Limit, "minute", "refused")
		// The one behind a waiter that will sleep past its deadline fails at once too.
		var all sync.WaitGroup
		all.Go(func() { check.NoError(t, wait(2*time.Minute), "the head") })
		synctest.Wait()
		if err := wait(30 * time.Second); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, budget.ErrExhausted) || time.Since(start) != 0 {
			t.Fatalf("behind the head, after %s: %v", time.Since(start), err)
		}
		// A deadline to the microsecond of the instant is enough.
		all.Go(func() {
			if err := wait(time.Minute); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("behind the head: %v", err)
			}
		})
		all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, check.Err(b.Wait(ctx, budget.Call{Operation: "videos.list"})), context.Canceled, "a cancelled wait")
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}))(t)
		var mu sync.Mutex
		at := map[time.Time]string{} // no two are charged at one instant
		var all sync.WaitGroup
		// A small call behind a large one waits its turn; a search, which is
		// checked against other limits, has a queue of its own.
		for i, n := range []int64{6, 10, 1, 1, 8} {
			all.Go(func() {
				receipt, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(n)})
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				mu.Lock()
				defer mu.Unlock()
				at[receipt.At] = fmt.Sprint(i)
			})
			synctest.Wait()
		}
		all.Wait()
		var served []string
		for _, instant := range slices.SortedFunc(maps.Keys(at), time.Time.Compare) {
			served = append(served, at[instant])
		}
		if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(served, want) {
			t.Fatalf("served %v, want %v", served, want)
		}
	})
}

// A call that waits for a limit of its own holds nobody else up; one that waits
// for a limit they share is not overtaken.
func TestWaitersOvertakeOnlyWhatTheyDoNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(100)
		spec.Limits[1].Limit = 100 // search, an hour
		b := open(t, spec)
		start := time.Now()
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "search.list", Units: units(60)}))(t)
		var all sync.WaitGroup
		at := map[string]time.Duration{}
		var mu sync.Mutex
		wait := func(name, operation string, n int64) {
			all.Go(func() {
				_, err := b.Wait(t.Context(), budget.Call{Operation: operation, Units: units(n)})
				mu.Lock()
				defer mu.Unlock()
				if at[name] = time.Since(start).Truncate(time.Second); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		wait("search", "search.list", 100) // fits in an hour, by its own limit
		wait("search2", "search.list", 1)  // behind the other search
		wait("video", "videos.list", 30)   // fits now
		wait("big", "videos.list", 60)     // fits in a minute
		wait("small", "videos.list", 1)    // would fit now, but not before the big one
		all.Wait()
		want := map[string]time.Duration{"search": time.Hour, "search2": 2 * time.Hour, "video": 0, "big": time.Minute, "small": time.Minute}
		if !maps.Equal(at, want) {
			t.Fatalf("served after %v, want %v", at, want)
		}
	})
}

// What no wait helps is said at once, also behind others.
func TestWaitSaysAtOnceWhatNoWaitHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}))(t)
		var all sync.WaitGroup
		all.Go(func() { check.NoError(t, check.Err(b.Wait(t.Context(), budget.Call{Operation: "videos.list"}))) })
		synctest.Wait()
		start := time.Now()
		for want, call := range map[error]budget.Call{
			budget.ErrNeverFits:        {Operation: "videos.list", Units: units(11)},
			budget.ErrUnknownOperation: {Operation: "videos.insert"},
			budget.ErrInvalid:          {Operation: "videos.list", ID: "a b"},
		} {
			if _, err := b.Wait(t.Context(), call); !errors.Is(err, want) || time.Since(start) != 0 {
				t.Errorf("after %s: %v, want %v", time.Since(start), err, want)
			}
		}
		all.Wait()
	})
}

func TestWaiterThatGivesUpFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(5)}))(t)
		head, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			check.Is(t, check.Err(b.Wait(head, budget.Call{Operation: "videos.list", Units: units(10)})), context.Canceled, "the head")
		})
		synctest.Wait()
		start := time.Now()
		all.Go(func() {
			if receipt, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list"}); err != nil || !receipt.At.Equal(start.Add(time.Second)) {
				t.Errorf("the next: %+v, %v", receipt, err)
			}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		giveUp()
		all.Wait()
	})
}

// What is over by Asked and the lease is within the lease, however long the wait
// before was.
func TestReservationTellsWhenItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		first, err := b.Reserve(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}, time.Second)
		if err != nil || !first.Asked.Equal(time.Now()) {
			t.Fatalf("asked at %s, now %s: %v", first.Asked, time.Now(), err)
		}
		must.Do(t, first.Settle(t.Context(), 10))
		waited := must.Get(b.WaitReserve(t.Context(), budget.Call{Operation: "videos.list"}, time.Second))(t)
		if !waited.Asked.Equal(time.Now()) || waited.Asked.Truncate(time.Microsecond).After(waited.At) || waited.At.Sub(first.At) < time.Minute {
			t.Fatalf("asked at %s, charged at %s, now %s", waited.Asked, waited.At, time.Now())
		}
	})
}

// A waiter learns when its units fit if reservations run to their lease's end. It
// wakes when they come back sooner: at once where this process finished one, and
// soon where another did.
func TestWaitersWakeWhenReservationsFinishEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(clock)
		spec := videoSpec(10)
		ours := must.Get(budget.New(store, spec))(t)
		theirs := must.Get(budget.New(store, spec))(t)
		for name, finish := range map[string]struct {
			by      *budget.Budget
			release bool
			late    time.Duration
		}{
			"released here": {ours, true, mostJitter}, "released elsewhere": {theirs, true, 10*time.Second + mostJitter},
			"settled here": {ours, false, mostJitter}, "settled elsewhere": {theirs, false, mostJitter},
		} {
			held, err := ours.Reserve(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}, time.Hour)
			if err != nil {
				t.Fatal(name, err)
			}
			var all sync.WaitGroup
			var at time.Time
			all.Go(func() {
				r, err := ours.WaitReserve(t.Context(), budget.Call{Operation: "videos.list"}, time.Second)
				if err != nil {
					t.Error(name, err)
				}
				at = r.At
			})
			time.Sleep(time.Second)
			synctest.Wait()
			fits := time.Now()
			if finish.release {
				err = finish.by.Release(t.Context(), held.ID)
			} else {
				fits = fits.Add(time.Minute)
				err = finish.by.Settle(t.Context(), held.ID, 10)
			}
			if err != nil {
				t.Fatal(name, err)
			}
			all.Wait()
			if late := at.Sub(fits); late < -time.Microsecond || late > finish.late {
				t.Errorf("%s: charged %s after it fits", name, late)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// A wait is not given up because of leases that may end before the deadline.
func TestWaitForWhatIsOpen(t *testing.T) {
	for _, l := range []limit.Limit{{Window: limit.ConcurrentWindow()}, {Window: limit.RollingWindow(time.Second)}} {
		synctest.Test(t, func(t *testing.T) {
			l.Name, l.Limit, l.Counts = "few", 1, limit.CountCalls
			b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
				Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 1}}, Limits: []limit.Limit{l},
			}))(t)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			open := must.Get(b.Reserve(ctx, budget.Call{Operation: "list"}, time.Hour))(t)
			results := make(chan error)
			for range 2 {
				go func() {
					r, err := b.WaitReserve(ctx, budget.Call{Operation: "list"}, time.Hour)
					if err == nil {
						err = r.Settle(ctx, 1)
					}
					results <- err
				}()
			}
			<-time.After(time.Second)
			must.Do(t, open.Settle(ctx, 1))
			for range 2 {
				check.NoError(t, <-results, l.Window.Kind)
			}
		})
	}
}

// recoveringStore holds charges back until an instant that it does not know, as one does
// until the other hosts have reported a loss.
type recoveringStore struct {
	driver.Store
	reported time.Time
}

func (s recoveringStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if !time.Now().Before(s.reported) {
		return s.Store.Decide(ctx, b)
	}
	refusal := driver.Decision{Result: driver.Refused, Limit: -1, Recovering: true, RetryAt: b.Now + driver.RecoveryWait}
	return driver.Decisions{Now: b.Now, Items: slices.Repeat([]driver.Decision{refusal}, len(b.Items))}, nil
}

// A wait that is shorter than a recovery may last is granted once the other hosts
// have reported.
func TestWaitInARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := recoveringStore{memstore.New(func() int64 { return time.Now().UnixMicro() }), start.Add(time.Second)}
		b := must.Get(budget.New(store, videoSpec(10)))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if _, err := b.Wait(ctx, budget.Call{Operation: "videos.list"}); err != nil || time.Since(start) > 2*time.Second+mostJitter {
			t.Fatalf("after %s: %v; want it granted with the first look after 1 s", time.Since(start), err)
		}
	})
}

// A share does not wait for what it is guaranteed, whoever waits for the limit.
func TestWaitOfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 5}}, Limits: []limit.Limit{{
			Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour),
			Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 30}},
		}}})
		call := func(job string) budget.Call {
			return budget.Call{Operation: "op", Labels: budget.Labels{Job: job}}
		}
		start := time.Now()
		for range 14 {
			must.Get(b.Charge(t.Context(), call("backfill")))(t)
		}
		var all sync.WaitGroup
		all.Go(func() { check.NoError(t, check.Err(b.Wait(t.Context(), call("backfill"))), "backfill") })
		synctest.Wait() // it sleeps
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for range 6 {
			must.Get(b.Wait(ctx, call("nightly")))(t) // within the guarantee
			must.Equal(t, time.Since(start), 0, "waited")
		}
		err := check.Err(b.Wait(ctx, call("nightly")))
		must.Is(t, err, budget.ErrExhausted, "beyond it")
		all.Wait()
	})
}

// What is used of a day returns at the reset, and with it a guarantee that has lapsed: a
// wait that ends after the reset, and before the next lapse, is in vain.
func TestWaitForALapseFailsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight UTC
		day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
		b := open(t, budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 56}}, Limits: []limit.Limit{{
			Name: "day", Limit: 100, Counts: limit.CountUnits, Window: day,
			Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 60, Lapse: time.Hour.Microseconds()}},
		}}})
		time.Sleep(23*time.Hour + 30*time.Minute)
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "op", Units: units(45)}))(t)
		start := time.Now()
		wait := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := b.Wait(ctx, budget.Call{Operation: "op"})
			return err
		}
		must.Is(t, wait(23*time.Hour), budget.ErrExhausted)
		must.Equal(t, time.Since(start), 0, "waited in vain")
		must.Do(t, wait(24*time.Hour))
		must.Equal(t, time.Since(start).Truncate(time.Second), 23*time.Hour+30*time.Minute, "waited until the lapse")
	})
}
