package budget_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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

// A caller in the queue of a store that is stuck waits for the call under way, and then no longer
// than one alone, but for the moment that an answer may be on its way.
func TestQueuedCallersGiveUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(150)
		spec.Timeout = time.Second
		b := must.Get(budget.New(stuckStore{}, spec))(t)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				came := time.Now()
				_, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list"})
				if took := time.Since(came); !errors.Is(err, budget.ErrUnavailable) || took < spec.Timeout || took > 2*spec.Timeout+50*time.Millisecond {
					t.Errorf("caller %d: %v after %s, want ErrUnavailable within twice %s", i, err, took, spec.Timeout)
				}
			})
		}
		all.Wait()
	})
}

// slowStore takes its time for each decision, whatever the context says.
type slowStore struct {
	driver.Store
	takes time.Duration
}

func (s slowStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	for _, item := range b.Items {
		if item.Deadline.Before(time.Now().Add(s.takes)) {
			return driver.Decisions{}, errors.New("an item that waited in the queue has too little time left")
		}
	}
	time.Sleep(s.takes)
	return s.Store.Decide(ctx, b)
}

// A burst waits for its turn, however long that is, as long as the store answers: no call hears of
// an outage while there is no outage.
func TestABurstQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(10_000)
		spec.Timeout = time.Second
		b := must.Get(budget.New(slowStore{memstore.New(clock), 900 * time.Millisecond}, spec))(t)
		began := time.Now()
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				_, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list"})
				check.NoError(t, err)
			})
		}
		// One whose caller has a deadline leaves then, and is not charged.
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, err := b.Charge(impatient, budget.Call{Operation: "videos.list"})
		check.Is(t, err, context.DeadlineExceeded, "with a deadline in the queue")
		check.Equal(t, time.Since(began), 1500*time.Millisecond, "after")
		all.Wait()
		if took := time.Since(began); took < 4*900*time.Millisecond { // two full flights at once
			t.Errorf("all after %s: there was no queue", took)
		}
		check.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, int64(1000), "used")
	})
}

// panicStore panics in its first decision.
type panicStore struct {
	driver.Store
	panicked *bool
}

func (p panicStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	if !*p.panicked {
		*p.panicked = true
		panic("out of order")
	}
	return p.Store.Decide(ctx, b)
}

func TestBudgetSurvivesAStoresPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(budget.New(panicStore{memstore.New(clock), new(bool)}, videoSpec(150)))(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = b.Charge(t.Context(), budget.Call{Operation: "videos.list"})
		}()
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list"}))(t)
	})
}

// failingStore answers as a store whose context ended.
type failingStore struct {
	driver.Store
	decision driver.Decision
	err      error
}

func (f failingStore) Decide(context.Context, driver.Batch) (driver.Decisions, error) {
	return driver.Decisions{Items: []driver.Decision{f.decision}}, f.err
}

func (f failingStore) Change(context.Context, driver.Change) (driver.Changed, error) {
	return nil, cmp.Or(f.err, errors.ErrUnsupported)
}

func (failingStore) Finish(ctx context.Context, _ driver.Finishes) ([]driver.Finished, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (failingStore) Look(ctx context.Context, _ driver.Look) (driver.View, error) {
	<-ctx.Done()
	return driver.View{}, ctx.Err()
}

// A store that is too slow is out of reach, whatever the verb; a caller that gave up gets the
// error of its own context.
func TestSlowStoreIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(budget.New(failingStore{}, videoSpec(150)))(t)
		verbs := map[string]func(context.Context) error{
			"settle":  func(ctx context.Context) error { return b.Settle(ctx, "a", 1) },
			"release": func(ctx context.Context) error { return b.Release(ctx, "a") },
			"status":  func(ctx context.Context) error { _, err := b.Status(ctx); return err },
			"room":    func(ctx context.Context) error { return b.Room(ctx, budget.Needs{"videos.list": 2}, budget.Call{}) },
		}
		for verb, do := range verbs {
			check.Is(t, do(t.Context()), budget.ErrUnavailable, verb)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := do(ctx); errors.Is(err, budget.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s past the caller's deadline: %v", verb, err)
			}
			cancel()
		}
	})
}

// The error of a call that may have been charged says so, with the id, so that it can be sent
// again: where an answer may have been lost, and, of an id that the caller gave, where nobody
// looked whether an earlier try was charged.
func TestNotChargedIsKnown(t *testing.T) {
	for _, c := range []struct {
		decision     driver.Decision
		err          error
		given, newID bool // whether it is known that nothing is charged
	}{
		{driver.Decision{}, budget.ErrUnavailable, false, false},
		{driver.Decision{}, fmt.Errorf("%w; %w", budget.ErrUnavailable, budget.ErrNotCharged), false, true},
		{driver.Decision{Result: driver.OutcomeUnknown, Err: context.DeadlineExceeded}, nil, false, false},
		{driver.Decision{Result: driver.Late}, nil, false, true},
		{driver.Decision{Result: driver.Interrupted}, nil, false, true},
		{driver.Decision{Result: driver.Unreached, Err: budget.ErrUnavailable}, nil, false, true},
		{driver.Decision{Result: driver.Fenced}, nil, false, true},
		{driver.Decision{Result: driver.Fenced, Unsure: true}, nil, false, false},
		{driver.Decision{Result: driver.Refused}, nil, true, true},
		{driver.Decision{Result: driver.NeverFits}, nil, true, true},
		{driver.Decision{Result: driver.Overflow}, nil, true, true},
		{driver.Decision{Result: driver.Refused, Allowance: true}, nil, false, true},
		{driver.Decision{Result: driver.Refused, Allowance: true, Unsure: true}, nil, false, false},
	} {
		c.decision.Limit = -1
		b := must.Get(budget.New(failingStore{decision: c.decision, err: c.err}, videoSpec(150)))(t)
		for id, want := range map[string]bool{"": c.newID, "given": c.given} {
			_, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list", ID: id})
			var refused *budget.RefusedError
			if !errors.As(err, &refused) || refused.NotCharged != want || refused.ID == "" {
				t.Errorf("%+v, %v, id %q: %+v, want it known: %t", c.decision, c.err, id, refused, want)
				continue
			}
			says := fmt.Sprintf("whether id %q is charged is unknown", refused.ID)
			if errors.Is(c.err, budget.ErrNotCharged) {
				says = strings.Replace(says, "id", "an earlier call with id", 1)
			}
			if strings.Contains(err.Error(), says) == want && errors.Is(err, budget.ErrUnavailable) {
				t.Errorf("%+v, %v, id %q: %v, and whether it is charged is known: %t", c.decision, c.err, id, err, want)
			}
		}
	}
	b := must.Get(budget.New(failingStore{}, videoSpec(150)))(t)
	for id, want := range map[string]bool{"": true, "given": false} { // an id may have been charged before the price went
		_, err := b.Charge(t.Context(), budget.Call{Operation: "none", ID: id})
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || refused.NotCharged != want {
			t.Errorf("an unknown operation, id %q: %+v", id, refused)
		}
	}
}

// The error says that a store would not serve in the middle of a batch.
func TestRefusingStoreKeepsItsClass(t *testing.T) {
	for _, want := range []error{budget.ErrClock, budget.ErrDamaged, budget.ErrStoreConfig, budget.ErrClosed} {
		b := must.Get(budget.New(failingStore{decision: driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: fmt.Errorf("decide: %w", want)}}, videoSpec(150)))(t)
		if _, err := b.Charge(t.Context(), budget.Call{Operation: "videos.list"}); !errors.Is(err, want) || errors.Is(err, budget.ErrUnavailable) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestSpecsByHandAreChecked(t *testing.T) {
	for what, spoil := range map[string]func(*budget.Spec){
		"no limits":         func(s *budget.Spec) { s.Limits = nil },
		"no name":           func(s *budget.Spec) { s.Limits[0].Name = "" },
		"a name of words":   func(s *budget.Spec) { s.Limits[0].Name = "per minute" },
		"a name twice":      func(s *budget.Spec) { s.Limits[1].Name = s.Limits[0].Name },
		"no window":         func(s *budget.Spec) { s.Limits[0].Window = limit.Window{} },
		"no length":         func(s *budget.Spec) { s.Limits[0].Window = limit.RollingWindow(0) },
		"no calendar":       func(s *budget.Spec) { s.Limits[0].Window = limit.CalendarWindow(nil) },
		"no counts":         func(s *budget.Spec) { s.Limits[0].Counts = "" },
		"negative limit":    func(s *budget.Spec) { s.Limits[0].Limit = -1 },
		"limit past quota":  func(s *budget.Spec) { s.Limits[0].Quota = 1 },
		"too large":         func(s *budget.Spec) { s.Limits[0].Limit = limit.MaxUnits + 1 },
		"negative cost":     func(s *budget.Spec) { s.Costs["videos.list"] = budget.Cost{Units: -1} },
		"negative unknown":  func(s *budget.Spec) { s.Unknown = budget.Unknown{Allowed: true, Units: -1} },
		"negative time out": func(s *budget.Spec) { s.Timeout = -1 },
	} {
		spec := videoSpec(150)
		spoil(&spec)
		check.Is(t, check.Err(budget.New(memstore.New(clock), spec)), budget.ErrInvalid, what)
	}
}

// answeringStore decides at once, and answers later.
type answeringStore struct {
	driver.Store
	takes time.Duration
}

func (s answeringStore) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	defer time.Sleep(s.takes)
	return s.Store.Decide(ctx, b)
}

// An answer that is here when its time ends is taken: it only waits for the processor.
func TestAnswersThatWaitForTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(1000)
		spec.Timeout = time.Second
		b := must.Get(budget.New(answeringStore{memstore.New(clock), spec.Timeout + 40*time.Millisecond}, spec))(t)
		var all sync.WaitGroup
		for range 2 { // the second is a flight of its own
			all.Go(func() {
				check.NoError(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "videos.list"})))
			})
			synctest.Wait()
		}
		all.Wait()
		time.Sleep(time.Second) // until the store has answered
	})
}
