package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// steppingStore takes a while for each step, as one does that writes to a disk, and notes
// what it was asked.
type steppingStore struct {
	driver.Store
	takes time.Duration

	mu    sync.Mutex
	steps [][]string // the ids of each
}

func (s *steppingStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	var ids []string
	for _, item := range b.Items {
		ids = append(ids, item.ID)
	}
	s.mu.Lock()
	s.steps = append(s.steps, ids)
	s.mu.Unlock()
	time.Sleep(s.takes)
	b.Now = time.Now().UnixMicro()
	return s.Store.Decide(ctx, b)
}

func (s *steppingStore) decided() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ids := range s.steps {
		n += len(ids)
	}
	return n
}

func stepping(t *testing.T, takes time.Duration, spec budget.Spec) (*budget.Budget, *steppingStore) {
	t.Helper()
	store := &steppingStore{Store: memstore.New(clock), takes: takes}
	b := must.Get(budget.New(store, spec))(t)
	return b, store
}

// watched counts how often callers look whether a context has ended: at least once
// each time that a waiter goes to sleep again.
type watched struct {
	context.Context
	looks *atomic.Int64
}

func (w watched) Done() <-chan struct{} {
	w.looks.Add(1)
	return w.Context.Done()
}

// Many waiters are served nearly as soon as the limit allows, though the store takes 5 ms
// for a step, and what the store and the process do is linear in their number.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	refill := must.Get(limit.NewRefill(500, time.Second))(t)
	slow := must.Get(limit.NewRefill(100, time.Second))(t)
	n := effort.Of(1500, 2500, 5000)
	for name, c := range map[string]struct {
		takes  time.Duration
		limits []limit.Limit
		n      int
		ideal  time.Duration
		lease  time.Duration // of reservations, each settled at its middle; 0: plain charges
	}{
		"window": {5 * time.Millisecond, []limit.Limit{{Limit: 500, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)}}, n, time.Duration((n-1)/500) * time.Second, 0},
		"calls and units": {5 * time.Millisecond, []limit.Limit{
			{Limit: 500, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Second)}, {Limit: 100_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		}, n, time.Duration((n-1)/500) * time.Second, 0},
		"bucket":      {5 * time.Millisecond, []limit.Limit{{Limit: 50, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)}}, n, time.Duration(n-50) * 2 * time.Millisecond, 0},
		"no burst":    {500 * time.Microsecond, []limit.Limit{{Limit: 1, Counts: limit.CountUnits, Window: limit.BucketWindow(slow)}}, n / 10, time.Duration(n/10-1) * 10 * time.Millisecond, 0},
		"short leash": {time.Millisecond, []limit.Limit{{Limit: 5, Counts: limit.CountUnits, Window: limit.RollingWindow(50 * time.Millisecond)}}, n, time.Duration((n-1)/5) * 50 * time.Millisecond, 0},
		"open ones":   {500 * time.Microsecond, []limit.Limit{{Limit: 10, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()}}, n, time.Duration((n-1)/10) * 10 * time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for i := range c.limits {
					c.limits[i].Name = fmt.Sprint("l", i)
				}
				b, store := stepping(t, c.takes, budget.Spec{Name: "up/key1", Timeout: time.Minute, Costs: map[string]budget.Cost{"op": {Units: 1}}, Limits: c.limits})
				start := time.Now()
				var looks atomic.Int64
				var all sync.WaitGroup
				for range c.n {
					all.Go(func() {
						ctx, call := watched{t.Context(), &looks}, budget.Call{Operation: "op"}
						if c.lease == 0 {
							check.NoError(t, check.Err(b.Wait(ctx, call)))
							return
						}
						r, err := b.WaitReserve(ctx, call, c.lease)
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(c.lease / 2)
						check.NoError(t, r.Settle(t.Context(), 1))
					})
				}
				all.Wait()
				if took := time.Since(start); took < c.ideal || took > c.ideal*13/10 {
					t.Errorf("took %s, want %s to 1.3 times that", took, c.ideal)
				}
				if decided := store.decided(); decided > 3*c.n {
					t.Errorf("the store decided %d times for %d waiters, want at most 3 each", decided, c.n)
				}
				if looks.Load() > int64(12*c.n) {
					t.Errorf("%d looks at the contexts of %d waiters, want at most 12 each", looks.Load(), c.n)
				}
			})
		})
	}
}

// The caller that came first is served first, also where another process takes what several
// were about to share, and where waiters wait for one limit by different operations.
func TestManyWaitersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	for round := range effort.Of(10, 30, 100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			spec := videoSpec(20)
			spec.Limits[1].Limit = 100_000 // search: it never binds
			b, store := stepping(t, time.Millisecond, spec)
			thief := must.Get(budget.New(store.Store, spec))(t)
			served := make([]time.Time, 100)
			var all sync.WaitGroup
			for i := range served {
				call := budget.Call{Operation: "videos.list", Units: units(1 + random.Int64N(3))}
				if random.IntN(2) == 0 {
					call.Operation = "search.list"
				}
				all.Go(func() {
					receipt, err := b.Wait(t.Context(), call)
					if err != nil {
						t.Error(i, err)
					}
					served[i] = receipt.At
				})
				synctest.Wait()
			}
			for range 3000 { // 15 minutes in all
				time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
				_, err := thief.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(1 + random.Int64N(2))})
				if err != nil && !errors.Is(err, budget.ErrExhausted) {
					t.Fatal(err)
				}
			}
			all.Wait()
			for i := 1; i < len(served); i++ {
				if !served[i].After(served[i-1]) {
					t.Fatalf("round %d: waiter %d was served at %s, before the one ahead of it, at %s", round, i, served[i], served[i-1])
				}
			}
		})
	}
}

// Of those that wait, all whose deadline comes too early fail once that is known, those
// that are cancelled leave, and the others are served in their order.
func TestManyWaitersThatGiveUp(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		const ofMinute, n = 100, 1000
		b, store := stepping(t, time.Millisecond, videoSpec(ofMinute))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(ofMinute)}))(t)
		start := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		granted := map[int]time.Time{}
		for i := range n {
			timeout := time.Duration(random.Int64N(int64(20 * time.Minute)))
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			patient := random.IntN(4) > 0
			gone := timeout
			if !patient {
				gone = time.Duration(random.Int64N(int64(timeout)))
				time.AfterFunc(gone, cancel)
			}
			all.Go(func() {
				defer cancel()
				receipt, err := b.Wait(ctx, budget.Call{Operation: "videos.list", ID: fmt.Sprint(i), NewID: true})
				took := time.Since(start)
				switch {
				case err == nil:
					mu.Lock()
					granted[i] = receipt.At
					mu.Unlock()
				case errors.Is(err, context.Canceled) && !patient && took == gone:
				case !errors.Is(err, context.DeadlineExceeded) || took > timeout:
					t.Errorf("waiter %d of %s, patient: %v, failed after %s: %v", i, timeout, patient, took, err)
				case timeout < time.Minute-time.Second && took > time.Second:
					t.Errorf("waiter %d failed after %s; that %s is too short was known at once", i, took, timeout)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		var last time.Time
		for i := range n {
			at, ok := granted[i]
			if ok && !at.After(last) {
				t.Errorf("waiter %d was served at %s, before the one ahead of it, at %s", i, at, last)
			}
			if ok {
				last = at
			}
		}
		status := must.Get(b.Spent(t.Context(), budget.ByOperation, 0))(t)
		calls := int64(0)
		for _, row := range status.Rows {
			calls += row.Calls
		}
		if recent := len(granted); recent < ofMinute || store.decided() > 4*n || calls > int64(recent)+1 {
			t.Errorf("%d granted, %d calls in the ledger, %d decisions", recent, calls, store.decided())
		}
	})
}

// Those that go together are decided in one step, however many calls are queued before
// them: else one could be granted after one ahead of it was refused.
func TestWaitersThatGoTogetherAreDecidedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store := stepping(t, 100*time.Millisecond, videoSpec(1000))
		var all sync.WaitGroup
		do := func(n int, name string, ask func(context.Context, budget.Call) (budget.Receipt, error)) {
			for i := range n {
				all.Go(func() {
					check.NoError(t, check.Err(ask(t.Context(), budget.Call{Operation: "videos.list", ID: fmt.Sprint(name, i), NewID: true})))
				})
			}
		}
		do(100, "waits", b.Wait) // the first asks, alone
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		do(160, "charge", b.Charge) // some of these are still queued before the others
		all.Wait()
		together := func(step []string) int {
			return len(slices.DeleteFunc(slices.Clone(step), func(id string) bool { return !strings.HasPrefix(id, "waits") }))
		}
		for _, step := range store.steps {
			if n := together(step); n != 0 && n != 1 && n != 99 {
				t.Errorf("%d waiters were decided in one step, want 99 of them together", n)
			}
		}
	})
}

// As many waiters as one flight takes do not wait for the flight under way.
func TestWaitersTogetherAreASecondFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stepping(t, 100*time.Millisecond, videoSpec(1000))
		var all sync.WaitGroup
		began := time.Now()
		for range 1 + driver.MaxBatch {
			all.Go(func() { check.NoError(t, check.Err(b.Wait(t.Context(), budget.Call{Operation: "videos.list"}))) })
		}
		synctest.Wait() // the first asks, alone
		time.Sleep(50 * time.Millisecond)
		all.Go(func() { check.NoError(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "videos.list"}))) }) // is decided next
		all.Wait()
		must.Equal(t, time.Since(began), 200*time.Millisecond)
	})
}

// MaxWait bounds the wait for units alone: calls that wait for others of their process, or for a
// slow store, are decided.
func TestMaxWaitBoundsTheWaitForUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := stepping(t, 1500*time.Millisecond, videoSpec(1000))
		var all sync.WaitGroup
		for range 3 * driver.MaxBatch {
			all.Go(func() {
				check.NoError(t, check.Err(b.Wait(t.Context(), budget.Call{Operation: "videos.list", MaxWait: time.Second})))
			})
		}
		all.Wait()
	})
}

// A call whose wait ends as the one ahead of it is due does not overtake it, and is not refused for
// good: whoever asks again then waits behind it.
func TestMaxWaitOvertakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}))(t)
		left := time.Minute + time.Microsecond
		var first, second error
		var all sync.WaitGroup
		all.Go(func() {
			_, first = b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(10), MaxWait: time.Hour})
		})
		synctest.Wait()
		all.Go(func() {
			_, second = b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(10), MaxWait: left})
		})
		all.Wait()
		check.NoError(t, first)
		var refused *budget.RefusedError
		if !errors.As(second, &refused) || !errors.Is(second, budget.ErrExhausted) || refused.RetryAfter <= 0 {
			t.Errorf("%v", second)
		}
	})
}
