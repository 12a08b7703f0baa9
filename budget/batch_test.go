package budget_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// heldStore notes the ids of each batch, and holds the first until it is let go.
type heldStore struct {
	driver.Store
	mu    sync.Mutex
	seen  [][]string
	letGo chan struct{}
}

func (s *heldStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	var ids []string
	for _, item := range batch.Items {
		ids = append(ids, item.ID)
	}
	s.mu.Lock()
	s.seen = append(s.seen, ids)
	first := len(s.seen) == 1
	s.mu.Unlock()
	if first {
		<-s.letGo
	}
	return s.Store.Decide(ctx, batch)
}

// queue charges each of the calls while the store is held with another one, in their
// order, and lets the store go when meanwhile is done.
func queue(t *testing.T, calls []budget.Call, ctxs map[int]context.Context, meanwhile func()) (store *heldStore, receipts []budget.Receipt, errs []error) {
	t.Helper()
	store = &heldStore{Store: memstore.New(clock), letGo: make(chan struct{})}
	b := must.Get(budget.New(store, videoSpec(1_000_000)))(t)
	receipts, errs = make([]budget.Receipt, len(calls)), make([]error, len(calls))
	var all sync.WaitGroup
	all.Go(func() { must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list", ID: "first"}))(t) })
	synctest.Wait()
	for i, call := range calls {
		ctx := t.Context()
		if own := ctxs[i]; own != nil {
			ctx = own
		}
		all.Go(func() { receipts[i], errs[i] = b.Charge(ctx, call) })
		synctest.Wait()
	}
	meanwhile()
	synctest.Wait()
	close(store.letGo)
	all.Wait()
	return store, receipts, errs
}

func call(id string, n int64) budget.Call {
	return budget.Call{Operation: "videos.list", ID: id, Units: units(n)}
}

// Those who give up before their flight leaves are not sent, and the others get their own
// answers.
func TestLeavingAFlightChangesNoOthersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		impatient, cancel := context.WithCancel(t.Context())
		calls := []budget.Call{call("a", 1), call("b", 2), call("c", 3), call("d", 4), call("e", 5)}
		store, receipts, errs := queue(t, calls, map[int]context.Context{0: impatient, 2: impatient}, cancel)
		must.Equal(t, fmt.Sprint(store.seen), "[[first] [b d e]]")
		for i, c := range calls {
			if i == 0 || i == 2 {
				check.Is(t, errs[i], context.Canceled, c.ID)
				continue
			}
			if check.NoError(t, errs[i], c.ID); receipts[i].Units != *c.Units || receipts[i].ID != c.ID {
				t.Errorf("%s got the receipt %+v", c.ID, receipts[i])
			}
		}
	})
}

// A flight that everybody has left is not sent, and the next charge is.
func TestAnEmptyFlightIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		store, _, errs := queue(t, []budget.Call{call("a", 1), call("b", 1), call("c", 1)}, map[int]context.Context{0: impatient, 1: impatient},
			func() { time.Sleep(1500 * time.Millisecond) })
		must.Equal(t, fmt.Sprint(store.seen), "[[first] [c]]")
		check.Is(t, errs[0], context.DeadlineExceeded)
		check.Is(t, errs[1], context.DeadlineExceeded)
		check.NoError(t, errs[2])

		impatient, cancel = context.WithCancel(t.Context())
		store, _, errs = queue(t, []budget.Call{call("a", 1), call("b", 1)}, map[int]context.Context{0: impatient, 1: impatient}, cancel)
		must.Equal(t, fmt.Sprint(store.seen), "[[first]]")
		check.Is(t, errs[0], context.Canceled)
	})
}

// Charges are sent in the order in which they came, at most MaxBatch at once, and an id that
// stands twice in a batch is charged once: the later one is the replay. All but the first flight
// are quick here, so that 32 need not wait for it.
func TestFlightsKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []budget.Call
		for i := range 2*driver.MaxBatch + 3 {
			calls = append(calls, call(fmt.Sprint(i/2), 7))
		}
		store, receipts, errs := queue(t, calls, nil, func() {})
		must.Do(t, errors.Join(errs...))
		var sizes []int
		for _, ids := range store.seen {
			sizes = append(sizes, len(ids))
		}
		must.Equal(t, fmt.Sprint(sizes), fmt.Sprint([]int{1, driver.MaxBatch, 32, 32, 32, 32, 3}))
		for i, id := range slices.Concat(store.seen[1:]...) {
			if id != calls[i].ID || receipts[i].ID != id || receipts[i].Replayed != (i%2 == 1) {
				t.Fatalf("charge %d was sent as %s and has the receipt %+v", i, id, receipts[i])
			}
		}
		last := receipts[len(receipts)-1]
		must.Equal(t, last.Remaining, 1_000_000-1-int64(len(calls)+1)/2*7, "an id was charged twice")
	})
}

// gatedStore holds each batch until the test says how long the decision takes.
type gatedStore struct {
	driver.Store
	begun []int // how many items each batch has
	takes chan time.Duration
}

func (s *gatedStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	s.begun = append(s.begun, len(batch.Items)) // by one goroutine after the other, as the test waits between them
	time.Sleep(<-s.takes)
	return s.Store.Decide(ctx, batch)
}

// Where flights are quick, 32 charges do not wait for the one under way, else only MaxBatch do;
// a third flight waits.
func TestASecondFlight(t *testing.T) {
	const quick, slow = time.Microsecond, 10 * time.Millisecond
	for _, took := range []struct { // by charges one after the other, and then two at once
		alone, queued time.Duration
		want          string
	}{{quick, quick, "[1 1 1 1 32]"}, {quick, slow, "[1 1 1 1 128]"}, {slow, 0, "[1 1 128]"}} {
		synctest.Test(t, func(t *testing.T) {
			store := &gatedStore{Store: memstore.New(clock), takes: make(chan time.Duration)}
			b := must.Get(budget.New(store, videoSpec(1_000_000)))(t)
			charge := func(n int) *sync.WaitGroup {
				var all sync.WaitGroup
				for range n {
					all.Go(func() { check.NoError(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "videos.list"}))) })
					synctest.Wait()
				}
				return &all
			}
			land := func(all *sync.WaitGroup, each ...time.Duration) {
				for _, span := range each {
					store.takes <- span
					time.Sleep(span)
					synctest.Wait()
				}
				all.Wait()
			}
			land(charge(1), took.alone)
			if took.queued > 0 {
				land(charge(2), quick, took.queued)
			}
			rest := charge(1 + driver.MaxBatch + 31)
			check.Equal(t, fmt.Sprint(store.begun), took.want)
			close(store.takes)
			rest.Wait()
		})
	}
}

// Many goroutines charge at once, so that two flights are under way: each gets the answer to
// its own charge, and no unit is charged twice or lost.
func TestTwoFlightsAtOnce(t *testing.T) {
	t.Parallel()
	spec := videoSpec(1_990)
	spec.Timeout = time.Minute
	b := must.Get(budget.New(memstore.New(clock), spec))(t)
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for k := range 10 {
				id := fmt.Sprint(i, "-", k)
				receipt, err := b.Charge(t.Context(), call(id, 1))
				switch {
				case err == nil && receipt.ID == id && receipt.Units == 1:
					granted.Add(1)
				case !errors.Is(err, budget.ErrExhausted):
					t.Errorf("charge %s: %+v, %v", id, receipt, err)
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, granted.Load(), 1_990, "granted of 2,000")
	must.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, 1_990)
}

// A store that ends a flight's goroutine fails its callers and no others.
func TestAStoreThatEndsAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &endingStore{heldStore: heldStore{Store: memstore.New(clock), letGo: make(chan struct{})}}
		b := must.Get(budget.New(store, videoSpec(1_000)))(t)
		errs := make([]error, driver.MaxBatch+2)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = b.Charge(t.Context(), call(fmt.Sprint(i), 1)) })
			synctest.Wait()
		}
		close(store.letGo)
		all.Wait()
		check.NoError(t, errs[0])
		for _, err := range errs[1 : driver.MaxBatch+1] {
			check.Is(t, err, budget.ErrUnavailable)
		}
		check.NoError(t, errs[driver.MaxBatch+1])
	})
}

// endingStore ends the goroutine that asks for the second batch.
type endingStore struct{ heldStore }

func (s *endingStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	decided, err := s.heldStore.Decide(ctx, batch)
	s.mu.Lock()
	second := len(s.seen) == 2
	s.mu.Unlock()
	if second {
		runtime.Goexit()
	}
	return decided, err
}
