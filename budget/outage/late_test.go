package outage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	loses bool          // it does what it is asked to end, and does not say so
	dir   string        // of the host on it
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

func (s *lateStore) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	if s.heard++; s.handles() {
		return s.distantStore.Finish(ctx, f)
	}
	if s.loses {
		s.loses = false
		if _, err := s.distantStore.Finish(ctx, f); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-ctx.Done()
	return []driver.Finished{{Result: driver.FinishLate}}, nil
}

// onLate is a budget on a store that is late, and that has waited for nothing but the store.
func onLate(t *testing.T, inner *lateStore, shards bool) (*world, *outage.Store, *budget.Budget) {
	t.Helper()
	w := newWorldInFakeTime(t)
	inner.Store, inner.dir = w.store, t.TempDir()
	store := outage.New(inner, outage.Options{Dir: inner.dir, Allowance: 20, Timeout: time.Second, Clocks: w.clocks, PerBudget: shards})
	outage.SetTimes(store, func() (ran, waited, pressed time.Duration) { return 0, 0, 0 })
	return w, store, must.Get(budget.New(store, w.spec, budget.WithClosers(store)))(t)
}

// interrupted is a store of this machine that has no time to decide.
type interrupted struct{ driver.Store }

func (interrupted) Decide(_ context.Context, batch driver.Batch) (driver.Decisions, error) {
	return driver.Decisions{Now: batch.Now, Items: []driver.Decision{{Result: driver.Interrupted, Limit: -1}}}, nil
}

// A store of this machine that was interrupted is asked once, and is not out of reach.
func TestInterruptedIsNotOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		store := outage.New(interrupted{w.store}, outage.Options{Dir: t.TempDir(), Timeout: time.Second, Clocks: w.clocks})
		b := must.Get(budget.New(store, w.spec, budget.WithClosers(store)))(t)
		_, err := b.Would(t.Context(), budget.Call{Operation: "list"}, 0)
		check.Is(t, err, budget.ErrUnavailable)
		_, out := store.OutOfReach()
		check.Equal(t, out, false, "the breaker is open")
		check.NoError(t, b.Close())
	})
}

// A call that the store has handled too late is asked again as long as its caller has time, also of one
// server of several: it is the one that has answered.
func TestALateAnswerIsAskedAgain(t *testing.T) {
	for _, shards := range []bool{false, true} {
		testLateAnswer(t, shards)
	}
}

func testLateAnswer(t *testing.T, shards bool) {
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
		t.Run(fmt.Sprint(name, ", shards ", shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, store, b := onLate(t, &lateStore{tries: c.late, first: c.first}, shards)
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
				_, out := store.OutOfReach()
				check.Equal(t, out, c.late == 100, "the breaker is open")
				if refused := (*budget.RefusedError)(nil); errors.As(err, &refused) {
					check.Equal(t, refused.NotCharged, true, "known not to be charged")
				}
				check.NoError(t, b.Close())
			})
		})
	}
}

// A caller that has given up is charged by nobody, also beside one in its flight that has time left and
// is granted by the allowance.
func TestNoAllowanceForWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, b := onLate(t, &lateStore{first: driver.Late, tries: 100}, false)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, driver.ErrUnavailable)
		defer cancel()
		now := time.Now()
		items := []driver.Item{
			{ID: "hasty", Operation: "list", Units: 1, NewID: true, OnStoreError: driver.Open, Deadline: now.Add(2 * time.Second)},
			{ID: "patient", Operation: "list", Units: 1, NewID: true, OnStoreError: driver.Open, Deadline: now.Add(time.Minute)},
		}
		decided := must.Get(store.Decide(ctx, driver.Batch{Budget: w.spec.Name, Now: now.UnixMicro(), Limits: w.spec.Limits, Items: items}))(t)
		check.Equal(t, decided.Items[0].Result, driver.Unreached, "the one that gave up")
		check.Equal(t, decided.Items[1].Result, driver.Granted, "the one that waits")
		check.Equal(t, decided.Items[1].Allowance, true, "by the allowance")
		check.Equal(t, items[0].OnStoreError, driver.Open, "the caller's own item")
		check.NoError(t, b.Close())
	})
}

// What a try has charged, whose answer was lost, is among the host's own charges.
func TestALostAnswerIsTheHostsOwnCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &lateStore{first: driver.OutcomeUnknown, tries: 1}
		_, _, b := onLate(t, inner, false)
		receipt := must.Get(b.Charge(t.Context(), budget.Call{Operation: "search"}))(t)
		check.NoError(t, b.Close())
		own := must.Get(os.ReadFile(filepath.Join(inner.dir, "own", "up+key1")))(t)
		check.Contains(t, string(own), receipt.ID)
	})
}

// A reservation that was charged by a try whose answer was lost is ended, and one that could not be
// ended in time is ended later.
func TestALateEndIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &lateStore{}
		w, _, b := onLate(t, inner, false)
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
		// A try is recorded, the next one is too late: that nothing was recorded is not said.
		inner.tries = 0
		time.Sleep(time.Minute)            // the store is probed again
		must.Get(b.Status(t.Context()))(t) // records the end that was written down
		reserved := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "search"}, time.Hour))(t)
		inner.tries, inner.loses = 100, true
		hasty, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := reserved.Settle(hasty, 3)
		check.Is(t, err, budget.ErrUnavailable)
		check.Contains(t, err.Error(), "an earlier answer was lost")
		inner.tries = 0
		time.Sleep(time.Minute) // the store is probed again
		inner.tries = 0
		must.Get(b.Status(t.Context()))(t) // records the end that was written down
		check.Equal(t, w.used(), int64(9), "used in the end")
		check.NoError(t, b.Close())
	})
}
