package outage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// lateStore answers its first calls too late to do anything, or does them and loses the answer.
type lateStore struct {
	distantStore
	tries int
	first driver.Result // Late, Interrupted or OutcomeUnknown
}

// handles reports whether a call is one of those after the first.
func (s *lateStore) handles() bool {
	s.tries--
	return s.tries < 0
}

func (s *lateStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	ok := s.handles()
	if s.heard++; ok || s.first == driver.OutcomeUnknown {
		decided, err := s.distantStore.Decide(ctx, batch)
		if ok || err != nil {
			return decided, err
		}
	}
	<-ctx.Done()
	answer := driver.Decision{Result: s.first, Limit: -1}
	if s.first == driver.OutcomeUnknown {
		answer.Err = driver.ErrUnavailable
	}
	decided := driver.Decisions{Now: batch.Now}
	for range batch.Items {
		decided.Items = append(decided.Items, answer)
	}
	return decided, nil
}

func (s *lateStore) Finish(ctx context.Context, f driver.Finish) (driver.Finished, error) {
	if s.heard++; s.handles() {
		return s.distantStore.Finish(ctx, f)
	}
	<-ctx.Done()
	return driver.Finished{Result: driver.FinishLate}, nil
}

// A call that the store has handled too late is asked again as long as its caller has time.
func TestALateAnswerIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		first   driver.Result
		late    int
		timeout time.Duration // of the caller; 0: none
		closed  bool          // the call's policy
		fails   error
		source  string
		used    int64
	}{
		"once":                         {first: driver.Late, late: 1, source: budget.SourceStore, used: 1},
		"twice":                        {first: driver.Late, late: 2, source: budget.SourceStore, used: 1},
		"interrupted":                  {first: driver.Interrupted, late: 1, source: budget.SourceStore, used: 1},
		"the answer is lost":           {first: driver.OutcomeUnknown, late: 2, source: budget.SourceStore, used: 1},
		"always, and open":             {first: driver.Late, late: 100, source: budget.SourceAllowance},
		"always, and closed":           {first: driver.Late, late: 100, closed: true, fails: budget.ErrUnavailable},
		"later than the caller allows": {first: driver.Late, late: 2, timeout: 2 * time.Second, fails: budget.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldInFakeTime(t)
				inner := &lateStore{tries: c.late, first: c.first}
				inner.Store = w.store
				store := outage.New(inner, outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: time.Second, Clocks: w.clocks})
				outage.SetTimes(store, func() (ran, waited, pressed time.Duration) { return 0, 0, 0 })
				b := must.Get(budget.New(store, w.spec, budget.WithClosers(store)))(t)
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				operation := "list"
				if c.closed {
					operation = "safe"
				}
				receipt, err := b.Charge(ctx, budget.Call{Operation: operation})
				check.Is(t, err, c.fails)
				check.Equal(t, receipt.Source, c.source, "who decided")
				check.Equal(t, receipt.Replayed, false, "charged before under this id")
				check.Equal(t, w.used(), c.used, "used")
				if refused := (*budget.RefusedError)(nil); errors.As(err, &refused) {
					check.Equal(t, refused.NotCharged, true, "known not to be charged")
				}
				check.NoError(t, b.Close())
			})
		})
	}
}

// A reservation that was charged by a try whose answer was lost is ended, and one that could not be
// ended in time is ended later.
func TestALateEndIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		inner := &lateStore{}
		inner.Store = w.store
		store := outage.New(inner, outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: time.Second, Clocks: w.clocks})
		outage.SetTimes(store, func() (ran, waited, pressed time.Duration) { return 0, 0, 0 })
		b := must.Get(budget.New(store, w.spec, budget.WithClosers(store)))(t)
		for _, c := range []struct {
			late int
			used int64
		}{{1, 3}, {100, 100}} {
			inner.tries = 0
			before := w.used()
			reserved := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "search"}, time.Hour))(t)
			inner.tries = c.late
			check.NoError(t, reserved.Settle(t.Context(), 3))
			check.Equal(t, w.used()-before, c.used, "used after", c.late)
		}
		time.Sleep(time.Minute) // the store is probed again
		inner.tries = 0
		must.Get(b.Status(t.Context()))(t) // records the end that was written down
		check.Equal(t, w.used(), int64(6), "used in the end")
		check.NoError(t, b.Close())
	})
}
