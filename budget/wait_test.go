package budget_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
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
		receipt, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list"})
		if err != nil {
			t.Fatal(err)
		}
		if late := receipt.At.Sub(start.Add(time.Minute)); late < 0 || late > mostJitter {
			t.Fatalf("charged %s after the instant it fits", late)
		}
		if _, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(11)}); !errors.Is(err, budget.ErrNeverFits) {
			t.Fatalf("a wait for what never fits: %v", err)
		}
	})
}

func TestWaitFailsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		if _, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}); err != nil {
			t.Fatal(err)
		}
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
		if refused.RetryAfter != time.Minute || refused.Limit != "minute" {
			t.Fatalf("refused %+v", refused)
		}
		// The one behind a waiter that will sleep past its deadline fails at once too.
		var all sync.WaitGroup
		all.Go(func() {
			if err := wait(2 * time.Minute); err != nil {
				t.Errorf("the head: %v", err)
			}
		})
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
		if _, err := b.Wait(ctx, budget.Call{Operation: "videos.list"}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled wait: %v", err)
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		if _, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(10)}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var served []string
		var all sync.WaitGroup
		// A small call behind a large one waits its turn; a search, which is
		// checked against other limits, has a queue of its own.
		for i, n := range []int64{6, 10, 1, 1, 8} {
			all.Go(func() {
				if _, err := b.Wait(t.Context(), budget.Call{Operation: "videos.list", Units: units(n)}); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, fmt.Sprint(i))
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(served, want) {
			t.Fatalf("served %v, want %v", served, want)
		}
	})
}

func TestWaiterThatGivesUpFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, videoSpec(10))
		if _, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list", Units: units(5)}); err != nil {
			t.Fatal(err)
		}
		head, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := b.Wait(head, budget.Call{Operation: "videos.list", Units: units(10)}); !errors.Is(err, context.Canceled) {
				t.Errorf("the head: %v", err)
			}
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
