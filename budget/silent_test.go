package budget_test

import (
	"context"
	"errors"
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

// steps is a store that counts its steps, and of how many finishes each was. It fails while down
// is set.
type steps struct {
	driver.Store
	mu       sync.Mutex
	decided  []int
	finished []int
	down     bool
	held     chan struct{} // what Finish waits for; nil: nothing
}

func newSteps() *steps { return &steps{Store: memstore.New(clock)} }

func (s *steps) note(list *[]int, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, n)
	if s.down {
		return driver.ErrUnavailable
	}
	return nil
}

func (s *steps) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if err := s.note(&s.decided, len(b.Finishes)); err != nil {
		return driver.Decisions{}, err
	}
	return s.Store.Decide(ctx, b)
}

func (s *steps) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	if s.held != nil {
		<-s.held
	}
	if err := s.note(&s.finished, len(f.Items)); err != nil {
		return nil, err
	}
	return s.Store.Finish(ctx, f)
}

func (s *steps) want(t *testing.T, decided, finished []int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	check.EqualSlices(t, s.decided, decided, "finishes with each decision")
	check.EqualSlices(t, s.finished, finished, "finishes by themselves")
}

// onSteps is a budget of so many units a second on such a store.
func onSteps(t *testing.T, store *steps, units int64, more ...limit.Limit) *budget.Budget {
	t.Helper()
	return must.Get(budget.New(store, budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"op": {Units: 1}, "other": {Units: 1}}, Timeout: time.Second,
		Limits: append(more, limit.Limit{Name: "each", Limit: units, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)}),
	}))(t)
}

// fails fails the test.
func fails(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// soon reserves a unit and settles it without waiting.
func soon(t *testing.T, b *budget.Budget, failed func(error)) {
	t.Helper()
	if !must.Get(b.Reserve(t.Context(), budget.Call{Operation: "op"}, time.Minute))(t).SettleSoon(failed) {
		t.Fatal("it is not settled soon")
	}
}

// A call that costs what it was reserved takes one step of the store. The next decision finds it
// settled when it ended.
func TestASettlementGoesWithTheNextDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSteps()
		b := onSteps(t, store, 1)
		soon(t, b, fails(t))
		ended := time.Now()
		time.Sleep(2 * time.Millisecond)
		_, err := b.Charge(t.Context(), budget.Call{Operation: "op"})
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !refused.RetryAt.Equal(ended.Add(time.Second)) {
			t.Fatalf("%v, want a refusal until a second after the call ended", err)
		}
		store.want(t, []int{0, 1}, nil)
		time.Sleep(time.Second)
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "op"}))(t)
		store.want(t, []int{0, 1, 0}, nil)
		must.Do(t, b.Close())
	})
}

// Without a next decision it goes by itself, and neither Flush nor Close leaves it behind.
func TestASettlementDoesNotStayBehind(t *testing.T) {
	for name, end := range map[string]func(*budget.Budget) error{
		"time":  func(*budget.Budget) error { time.Sleep(6 * time.Millisecond); return nil },
		"Flush": func(b *budget.Budget) error { return b.Flush(context.Background()) },
		"Close": (*budget.Budget).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newSteps()
			b := onSteps(t, store, 1)
			soon(t, b, fails(t))
			began := time.Now()
			check.NoError(t, end(b), name)
			store.want(t, []int{0}, []int{1})
			if took := time.Since(began); name != "time" && took != 0 {
				t.Errorf("%s took %s", name, took)
			}
		})
	}
}

// A settlement whose decision fails is sent by itself; if that fails too, the caller hears of it.
func TestASettlementOutlivesItsDecision(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newSteps()
			b := onSteps(t, store, 1)
			var failed error
			soon(t, b, func(err error) { failed = err })
			store.held, store.down = make(chan struct{}), true
			if _, err := b.Charge(t.Context(), budget.Call{Operation: "op"}); !errors.Is(err, budget.ErrUnavailable) {
				t.Fatal(err)
			}
			synctest.Wait()
			store.down = stays
			close(store.held)
			must.Do(t, b.Flush(t.Context()))
			store.want(t, []int{0, 1}, []int{1})
			check.Equal(t, errors.Is(failed, budget.ErrUnavailable), stays, "the caller hears of it", failed)
		})
	}
}

// A settlement that a limit on open reservations waits for is for the caller, and so is one while
// many are on their way already.
func TestNotEverySettlementIsForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSteps()
		b := onSteps(t, store, 100, limit.Limit{Name: "open", Limit: 1, Counts: limit.CountCalls, Window: limit.ConcurrentWindow(), Operations: []string{"op"}})
		r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "op"}, time.Minute))(t)
		check.Equal(t, r.SettleSoon(fails(t)), false, "settled soon")
		must.Do(t, r.Settle(t.Context(), 1))
		store.want(t, []int{0}, []int{1})

		store.held = make(chan struct{})
		taken := 0
		for range 20 {
			r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "other"}, time.Minute))(t)
			if r.SettleSoon(fails(t)) {
				taken++
			}
			time.Sleep(6 * time.Millisecond)
		}
		check.Equal(t, taken, 8, "settled soon")
		close(store.held)
		must.Do(t, b.Close())
	})
}

// A settlement that is to come later holds the reservation until then, counts from then, and is
// waited for. If the store does not take it, the caller hears of it.
func TestSettlementsAfterASpan(t *testing.T) {
	ends := map[string]func(*budget.Budget) error{
		"Flush": func(b *budget.Budget) error { return b.Flush(context.Background()) },
		"Close": (*budget.Budget).Close,
	}
	for name, end := range ends {
		synctest.Test(t, func(t *testing.T) {
			store := newSteps()
			b := onSteps(t, store, 3)
			for range 3 {
				check.Equal(t, must.Get(b.Reserve(t.Context(), budget.Call{Operation: "op"}, time.Hour))(t).SettleAfter(2*time.Second, fails(t)), true, "taken")
			}
			began := time.Now()
			_, err := b.Charge(t.Context(), budget.Call{Operation: "op"})
			check.Is(t, err, budget.ErrExhausted)
			check.NoError(t, end(b), name)
			check.Equal(t, time.Since(began), 2*time.Second, name)
			after := onSteps(t, store, 3)
			time.Sleep(time.Second - time.Microsecond)
			check.Is(t, check.Err(after.Charge(t.Context(), budget.Call{Operation: "op"})), budget.ErrExhausted, "it counts from its settlement")
			time.Sleep(time.Microsecond)
			must.Get(after.Charge(t.Context(), budget.Call{Operation: "op"}))(t)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		store := newSteps()
		b := onSteps(t, store, 3)
		var failed error
		check.Equal(t, must.Get(b.Reserve(t.Context(), budget.Call{Operation: "op"}, time.Hour))(t).SettleAfter(time.Second, func(err error) { failed = err }), true, "taken")
		store.mu.Lock()
		store.down = true
		store.mu.Unlock()
		must.Do(t, b.Close())
		check.Is(t, failed, budget.ErrUnavailable)
	})
}

// Settlements that come while one is under way are decided together.
func TestSettlementsThatComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSteps()
		b := must.Get(budget.New(store, videoSpec(1_000_000)))(t)
		var open []*budget.Reservation
		for range 100 {
			open = append(open, must.Get(b.Reserve(t.Context(), budget.Call{Operation: "videos.list"}, time.Minute))(t))
		}
		store.held = make(chan struct{})
		impatient, cancel := context.WithCancel(t.Context())
		errs := make([]error, len(open))
		var all sync.WaitGroup
		for i, r := range open {
			ctx := t.Context()
			if i == 50 {
				ctx = impatient
			}
			all.Go(func() {
				if errs[i] = r.Settle(ctx, int64(i)); i == 40 {
					errs[i] = r.Settle(ctx, 1) // otherwise
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		close(store.held)
		all.Wait()
		for i, err := range errs {
			switch want := map[int]error{40: budget.ErrConflict, 50: context.Canceled}[i]; {
			case !errors.Is(err, want):
				t.Errorf("settlement %d: %v, want %v", i, err, want)
			case i == 50 && errors.Is(err, budget.ErrNotCharged):
				t.Errorf("it speaks of a charge: %v", err)
			}
		}
		store.want(t, make([]int, 100), []int{1, 98, 1})
	})
}
