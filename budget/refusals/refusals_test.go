package refusals_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const span = 100 * time.Millisecond

// counting counts what it is asked to decide.
type counting struct {
	driver.Store
	asked atomic.Int64
}

func (c *counting) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	c.asked.Add(1)
	return c.Store.Decide(ctx, batch)
}

// pool is a budget of 10 units a minute, 5 calls of which may be searches.
func pool() budget.Spec {
	return budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"get": {Units: 1}, "list": {Units: 1}, "search": {Units: 1}},
		Limits: []limit.Limit{
			{Name: "minute", Quota: 12, Headroom: 2, Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)},
			{Name: "searches", Limit: 5, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Minute), Operations: []string{"search"}},
			{Name: "open", Limit: 5, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		},
	}
}

// full is the pool after all 10 units were charged, on a store that counts.
func full(t *testing.T, spec budget.Spec) (*budget.Budget, *counting) {
	t.Helper()
	inner := &counting{Store: memstore.New(nil)}
	b := must.Get(budget.New(refusals.New(inner, span), spec))(t)
	must.Get(b.Charge(t.Context(), call(10)))(t)
	inner.asked.Store(0)
	return b, inner
}

func call(units int64) budget.Call { return budget.Call{Operation: "get", Units: &units} }

// refused charges a call, which must be refused.
func refused(t *testing.T, b *budget.Budget, c budget.Call) *budget.RefusedError {
	t.Helper()
	_, err := b.Charge(t.Context(), c)
	var r *budget.RefusedError
	if !errors.As(err, &r) {
		t.Fatalf("%+v: %v, want a refusal", c, err)
	}
	return r
}

// A loop of refused calls costs the store ten calls a second. Each refusal says what the
// store would say.
func TestALoopOfRefusedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, inner := full(t, pool())
		fits := time.Now().Add(time.Minute)
		for i := range 1000 {
			r := refused(t, b, call(1))
			must.Equal(t, r.Remembered, i%100 != 0, "remembered", i)
			must.Equal(t, r.RetryAt.UnixMicro(), fits.UnixMicro(), "retry at")
			must.Equal(t, r.RetryAfter, time.Until(fits), "retry after")
			must.Equal(t, r.Limit, "minute")
			must.Equal(t, r.Remaining, 0)
			must.Equal(t, r.Source, budget.SourceStore)
			if !r.NotCharged || !errors.Is(r, budget.ErrExhausted) {
				t.Fatalf("refused with %+v", r)
			}
			time.Sleep(time.Millisecond)
		}
		must.Equal(t, inner.asked.Load(), 10, "calls to the store in a second")
	})
}

// The memory ends a thousandth and a microsecond before the instant, and the call is granted at
// that instant.
func TestNeverPastTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, inner := full(t, pool())
		time.Sleep(time.Minute - 50*time.Millisecond)
		must.Equal(t, refused(t, b, call(1)).Remembered, false, "the first")
		time.Sleep(50*time.Millisecond - 52*time.Microsecond)
		must.Equal(t, refused(t, b, call(1)).Remembered, true, "before the last thousandth")
		time.Sleep(time.Microsecond)
		must.Equal(t, refused(t, b, call(1)).Remembered, false, "in the last thousandth")
		time.Sleep(50 * time.Microsecond)
		must.Equal(t, refused(t, b, call(1)).RetryAfter, time.Microsecond, "a microsecond before")
		time.Sleep(time.Microsecond)
		must.Get(b.Charge(t.Context(), call(1)))(t)
		must.Equal(t, inner.asked.Load(), 4, "calls to the store")
	})
}

// Charges of one microsecond take the following ones, so that the store may have come to the
// instant before the process's clock does.
func TestTheLedgerIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, inner := full(t, pool())
		time.Sleep(time.Minute - 5*time.Microsecond)
		check.Equal(t, refused(t, b, call(10)).RetryAfter, 5*time.Microsecond, "the wait")
		check.Equal(t, refused(t, b, call(10)).Remembered, true, "that the refusal is remembered")
		for range 6 { // each but the first is a microsecond after the one before
			must.Get(b.Charge(t.Context(), call(0)))(t)
		}
		asked := inner.asked.Load()
		must.Get(b.Charge(t.Context(), call(10)))(t)
		check.Equal(t, inner.asked.Load(), asked+1, "questions to the store")
	})
}

// What a refusal answers besides the same call, and what it does not.
func TestWhichCallsAreAnswered(t *testing.T) {
	fewer, more, huge := int64(2), int64(4), int64(11)
	for name, c := range map[string]struct {
		call budget.Call
		want bool
	}{
		"the same":                     {budget.Call{Units: new(int64(3))}, true},
		"more units":                   {budget.Call{Units: &more}, true},
		"fewer units":                  {budget.Call{Units: &fewer}, false},
		"what never fits":              {budget.Call{Units: &huge}, false},
		"an operation of those limits": {budget.Call{Operation: "list", Units: &more}, true},
		"an operation of other limits": {budget.Call{Operation: "search", Units: &more}, false},
		"an id of the caller's":        {budget.Call{Units: &more, ID: "mine"}, false},
		"a new id of the caller's":     {budget.Call{Units: &more, ID: "mine", NewID: true}, true},
		"another floor":                {budget.Call{Units: &more, Floor: 1}, false},
		"leave to spend headroom":      {budget.Call{Units: &more, UseHeadroom: true}, false},
		"another policy":               {budget.Call{Units: &more, OnStoreError: budget.Open}, false},
		"another region":               {budget.Call{Units: &more, Labels: budget.Labels{Region: "US"}}, true},
		"a job of nobody's share":      {budget.Call{Units: &more, Labels: budget.Labels{Job: "adhoc"}}, true},
		"a job of a share":             {budget.Call{Units: &more, Labels: budget.Labels{Job: "nightly"}}, false},
		"a pass":                       {budget.Call{Units: &more, Labels: budget.Labels{Job: "adhoc"}, Fence: 7}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := pool()
				spec.Limits[0].Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 0}}
				b, inner := full(t, spec)
				must.Equal(t, refused(t, b, call(3)).Remembered, false, "the first")
				if c.call.Operation == "" {
					c.call.Operation = "get"
				}
				must.Equal(t, refused(t, b, c.call).Remembered, c.want, "remembered")
				must.Equal(t, inner.asked.Load(), map[bool]int64{true: 1, false: 2}[c.want], "calls to the store")
			})
		})
	}
}

// Of several refusals, the one of most units that are no more than the call's is the exact
// one.
func TestTheExactRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(budget.New(refusals.New(memstore.New(nil), span), pool()))(t)
		start := time.Now()
		for range 10 {
			must.Get(b.Charge(t.Context(), call(1)))(t)
			time.Sleep(time.Second)
		}
		for _, units := range []int64{4, 2, 7} {
			must.Equal(t, refused(t, b, call(units)).Remembered, units == 7)
		}
		for units, want := range map[int64]time.Duration{2: time.Second, 3: time.Second, 4: 3 * time.Second, 10: 3 * time.Second} {
			r := refused(t, b, call(units))
			must.Equal(t, r.Remembered, true)
			must.Equal(t, r.RetryAt.Sub(start), time.Minute+want, units)
		}
	})
}

// A reservation is answered by a refusal of a reservation of the same lease.
func TestReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, inner := full(t, pool())
		for i, lease := range []time.Duration{time.Second, time.Second, time.Minute} {
			_, err := b.Reserve(t.Context(), call(1), lease)
			var r *budget.RefusedError
			if !errors.As(err, &r) || r.Remembered != (i == 1) {
				t.Fatalf("reservation %d: %v", i, err)
			}
		}
		must.Equal(t, refused(t, b, call(1)).Remembered, false, "a plain charge")
		must.Equal(t, inner.asked.Load(), 3, "calls to the store")
	})
}

// A dry run goes to the store, and is not remembered.
func TestDryRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counting{Store: memstore.New(nil)}
		store := refusals.New(inner, span)
		decide := func(units int64, dry bool) driver.Decision {
			item := driver.Item{ID: rand.Text(), NewID: true, Operation: "get", Units: units, DryRun: dry}
			return must.Get(store.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: pool().Limits, Items: []driver.Item{item}}))(t).Items[0]
		}
		decide(10, false)
		for i, dry := range []bool{true, true, false, false, true} {
			d := decide(1, dry)
			must.Equal(t, d.Result, driver.Refused)
			must.Equal(t, d.Remembered, i == 3, i)
		}
	})
}

// A refusal by one of several limits says nothing of a call that only the others check.
func TestFewerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(budget.New(refusals.New(memstore.New(nil), span), pool()))(t)
		search := budget.Call{Operation: "search"}
		for range 5 {
			must.Get(b.Charge(t.Context(), search))(t)
		}
		must.Equal(t, refused(t, b, search).Limit, "searches")
		must.Get(b.Charge(t.Context(), call(1)))(t)
		must.Equal(t, refused(t, b, search).Remembered, true)
	})
}

// What this process gives back ends the memory at once.
func TestForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		before, back func(ctx context.Context, b *budget.Budget) error
		asks         budget.Call
	}{
		"release": {back: func(ctx context.Context, b *budget.Budget) error { return b.Release(ctx, "held") }, asks: call(8)},
		"settle":  {back: func(ctx context.Context, b *budget.Budget) error { return b.Settle(ctx, "held", 2) }, asks: call(8)},
		"unlock": {
			before: func(ctx context.Context, b *budget.Budget) error {
				return check.Err(b.Lock(ctx, budget.LockOrder{Until: budget.Until{After: time.Hour}, ByHand: true}))
			},
			back: func(ctx context.Context, b *budget.Budget) error { return check.Err(b.Unlock(ctx, "")) }, asks: call(1),
		},
		"a shorter lock": {
			before: func(ctx context.Context, b *budget.Budget) error {
				return check.Err(b.Lock(ctx, budget.LockOrder{Limit: "minute", Until: budget.Until{After: time.Hour}, ByHand: true}))
			},
			back: func(ctx context.Context, b *budget.Budget) error {
				err := check.Err(b.Lock(ctx, budget.LockOrder{Limit: "minute", Until: budget.Until{After: time.Millisecond}, ByHand: true}))
				time.Sleep(time.Millisecond)
				return err
			}, asks: call(1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &counting{Store: memstore.New(nil)}
				store := refusals.New(inner, span)
				b, same := must.Get(budget.New(store, pool()))(t), must.Get(budget.New(store, pool()))(t)
				must.Get(b.Reserve(t.Context(), budget.Call{Operation: "get", Units: new(int64(5)), ID: "held"}, time.Hour))(t)
				if c.before != nil {
					must.Do(t, c.before(t.Context(), b))
				}
				must.Equal(t, refused(t, b, c.asks).Remembered, false, "the first")
				must.Equal(t, refused(t, b, c.asks).Remembered, true)
				must.Do(t, c.back(t.Context(), same))
				must.Get(b.Charge(t.Context(), c.asks))(t)
			})
		})
	}
}

// A release that goes with a decision may let in a call that was refused before.
func TestForgottenByADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := refusals.New(&counting{Store: memstore.New(nil)}, span)
		b := must.Get(budget.New(store, pool()))(t)
		must.Get(b.Reserve(t.Context(), budget.Call{Operation: "get", Units: new(int64(5)), ID: "held"}, time.Hour))(t)
		must.Equal(t, refused(t, b, call(8)).Remembered, false, "the first")
		must.Equal(t, refused(t, b, call(8)).Remembered, true)
		decided := must.Get(store.Decide(t.Context(), driver.Batch{
			Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: b.Limits("get"), Finishes: []driver.Finish{{ID: "held", Release: true}},
			Items: []driver.Item{{ID: "new", NewID: true, Operation: "get", Units: 8}},
		}))(t)
		must.Equal(t, decided.Items[0].Result, driver.Granted)
		must.Equal(t, decided.Finished[0].Result, driver.Released)
	})
}

// held makes decisions wait, after they were made, until it is closed.
type held struct {
	driver.Store
	decided chan struct{}
	open    chan struct{}
}

func (h *held) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	decided, err := h.Store.Decide(ctx, batch)
	h.decided <- struct{}{}
	<-h.open
	return decided, err
}

// A refusal whose answer is overtaken by that of a release is not remembered.
func TestAnswerThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := memstore.New(nil)
		plain := must.Get(budget.New(model, pool()))(t)
		must.Get(plain.Reserve(t.Context(), budget.Call{Operation: "get", Units: new(int64(10)), ID: "held"}, time.Hour))(t)
		inner := &held{model, make(chan struct{}, 9), make(chan struct{})}
		b := must.Get(budget.New(refusals.New(inner, span), pool()))(t)
		end := make(chan struct{})
		go func() {
			defer close(end)
			if r := refused(t, b, call(1)); r.Remembered {
				t.Errorf("the first refusal: %+v", r)
			}
		}()
		<-inner.decided
		must.Do(t, b.Release(t.Context(), "held"))
		close(inner.open)
		<-end
		must.Get(b.Charge(t.Context(), call(1)))(t)
	})
}

// A wait that could not end in time fails at once, from memory. Before one that sleeps, the
// store says for how long.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, inner := full(t, pool())
		start := time.Now()
		_ = refused(t, b, call(1))
		wait := func(units int64, patience time.Duration) (*budget.RefusedError, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := b.Wait(ctx, call(units))
			var r *budget.RefusedError
			errors.As(err, &r)
			return r, err
		}
		r, err := wait(1, time.Second)
		must.Is(t, err, context.DeadlineExceeded)
		must.Equal(t, r.Remembered, true)
		must.Equal(t, inner.asked.Load(), 1, "calls to the store")
		must.Do(t, check.Err(b.Wait(t.Context(), call(2))))
		if took := time.Since(start); took < time.Minute || took > time.Minute+10*time.Millisecond {
			t.Errorf("waited %s, want a minute", took)
		}
		must.Equal(t, inner.asked.Load(), 2+60/10, "calls to the store: a waiter asks every ten seconds")
	})
}

// A batch is answered in its order, whoever answers which item.
func TestMixedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counting{Store: memstore.New(nil)}
		store := refusals.New(inner, span)
		limits := pool().Limits
		item := func(id string, units int64) driver.Item {
			return driver.Item{ID: id, NewID: true, Operation: "get", Units: units}
		}
		decide := func(items ...driver.Item) driver.Decisions {
			return must.Get(store.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits, Items: items}))(t)
		}
		decide(item("a", 6))
		decide(item("b", 5))
		d := decide(item("c", 5), item("d", 3), item("e", 6), item("f", 2))
		var results []driver.Result
		var remembered []bool
		for _, one := range d.Items {
			results, remembered = append(results, one.Result), append(remembered, one.Remembered)
		}
		if !slices.Equal(results, []driver.Result{driver.Refused, driver.Granted, driver.Refused, driver.Refused}) || !slices.Equal(remembered, []bool{true, false, true, false}) {
			t.Errorf("results %v, remembered %v", results, remembered)
		}
	})
}

// Without a span, with a context that has ended and after Close, the store answers.
func TestTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counting{Store: memstore.New(nil)}
		off := must.Get(budget.New(refusals.New(inner, 0), pool()))(t)
		must.Get(off.Charge(t.Context(), call(10)))(t)
		for range 2 {
			must.Equal(t, refused(t, off, call(1)).Remembered, false)
		}
		store := refusals.New(inner, span)
		b := must.Get(budget.New(store, pool()))(t)
		_ = refused(t, b, call(1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, check.Err(b.Charge(ctx, call(1))), context.Canceled, "a cancelled call")
		must.Do(t, store.Close())
		must.Is(t, check.Err(b.Charge(t.Context(), call(1))), budget.ErrClosed)
	})
}

// says decides every item alike.
type says struct {
	driver.Store
	decision driver.Decision
}

func (s *says) Decide(_ context.Context, batch driver.Batch) (driver.Decisions, error) {
	d := s.decision
	d.RetryAt = batch.Now + time.Minute.Microseconds()
	return driver.Decisions{Now: batch.Now, Items: slices.Repeat([]driver.Decision{d}, len(batch.Items))}, nil
}

// Only a refusal by the store that nobody else may end at any time is remembered.
func TestWhichRefusalsAreRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		decision driver.Decision
		want     bool
	}{
		"a limit's":              {driver.Decision{}, true},
		"a lock's":               {driver.Decision{Limit: -1, Locked: true, Why: "by hand"}, true},
		"a loss's":               {driver.Decision{Limit: -1, Recovering: true}, false},
		"an allowance's":         {driver.Decision{Allowance: true}, false},
		"of what may be charged": {driver.Decision{Unsure: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.decision.Result = driver.Refused
				b := must.Get(budget.New(refusals.New(&says{decision: c.decision}, span), pool()))(t)
				first := refused(t, b, call(1))
				again := refused(t, b, call(1))
				must.Equal(t, again.Remembered, c.want)
				if !errors.Is(again, first.Err) || again.Why != first.Why || again.Limit != first.Limit {
					t.Errorf("%+v, first %+v", again, first)
				}
			})
		})
	}
}

// Where guarantees lapse, waiting may not help a call of more units, which the store must
// say. The same units are answered.
func TestLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := pool()
		day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
		spec.Limits = append(spec.Limits, limit.Limit{
			Name: "day", Limit: 100, Counts: limit.CountUnits, Window: day,
			Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 50, Lapse: time.Hour.Microseconds()}},
		})
		b, _ := full(t, spec)
		for units, want := range map[int64]bool{3: true, 4: false} {
			_ = refused(t, b, call(3))
			must.Equal(t, refused(t, b, call(units)).Remembered, want, units)
		}
	})
}

// After a reload a limit of the same name may allow more.
func TestOtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := refusals.New(memstore.New(nil), span)
		spec := pool()
		b := must.Get(budget.New(store, spec))(t)
		must.Get(b.Charge(t.Context(), call(10)))(t)
		_ = refused(t, b, call(1))
		spec.Limits = slices.Clone(spec.Limits)
		spec.Limits[0].Limit, spec.Limits[0].Quota = 20, 22
		wider := must.Get(budget.New(store, spec))(t)
		must.Get(wider.Charge(t.Context(), call(1)))(t)
		must.Equal(t, refused(t, b, call(1)).Remembered, true)
	})
}
