package budget_test

import (
	"context"
	"errors"
	"reflect"
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

// clock is the store's clock: fake within a synctest bubble.
func clock() int64 { return time.Now().UnixMicro() }

func units(n int64) *int64 { return &n }

// videoSpec is a budget of limit units a minute with a search at 100.
func videoSpec(most int64) budget.Spec {
	return budget.Spec{
		Name: "youtube/key1",
		Limits: []limit.Limit{
			{Name: "minute", Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)},
			{Name: "search", Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour), Operations: []string{"search.list"}},
		},
		Costs: map[string]budget.Cost{"videos.list": {Units: 1}, "search.list": {Units: 100, OnStoreError: budget.Open}},
	}
}

func open(t *testing.T, spec budget.Spec) *budget.Budget {
	t.Helper()
	store := memstore.New(clock)
	return must.Get(budget.New(store, spec, budget.WithClosers(store)))(t)
}

func TestChargeAndRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := open(t, videoSpec(150))
		receipt, err := b.Charge(ctx, budget.Call{Operation: "search.list"})
		if err != nil || receipt.Units != 100 || receipt.Remaining != 50 || receipt.Limit != "minute" || receipt.ID == "" || !receipt.At.Equal(time.Now()) {
			t.Fatalf("%+v, %v", receipt, err)
		}
		time.Sleep(10 * time.Second)
		_, err = b.Charge(ctx, budget.Call{Operation: "search.list", Units: units(60)})
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("error %v", err)
		}
		want := budget.RefusedError{
			Budget: "youtube/key1", Operation: "search.list", Units: 60, Limit: "search", Remaining: 50,
			RetryAfter: time.Hour - 10*time.Second, RetryAt: receipt.At.Add(time.Hour), Source: budget.SourceStore, NotCharged: true, OnStoreError: budget.Open, Err: budget.ErrExhausted,
		}
		want.ID = refused.ID
		if !reflect.DeepEqual(*refused, want) {
			t.Errorf("refused with %+v, want %+v", *refused, want)
		}
		if !strings.Contains(err.Error(), "limit search has 50 left") {
			t.Fatalf("message %q", err)
		}
		_, err = b.Charge(ctx, budget.Call{Operation: "videos.list", Units: units(151)})
		if !errors.Is(err, budget.ErrNeverFits) || errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("error %v, want ErrNeverFits", err)
		}
	})
}

func TestBadCalls(t *testing.T) {
	b := open(t, videoSpec(150))
	for name, c := range map[string]struct {
		call budget.Call
		want error
	}{
		"no operation":      {budget.Call{}, budget.ErrInvalid},
		"unpriced":          {budget.Call{Operation: "videos.insert"}, budget.ErrUnknownOperation},
		"unpriced, units":   {budget.Call{Operation: "videos.insert", Units: units(1)}, budget.ErrUnknownOperation},
		"negative units":    {budget.Call{Operation: "videos.list", Units: units(-1)}, budget.ErrTooManyUnits},
		"too many units":    {budget.Call{Operation: "videos.list", Units: units(limit.MaxUnits + 1)}, budget.ErrTooManyUnits},
		"negative floor":    {budget.Call{Operation: "videos.list", Floor: -1}, budget.ErrTooManyUnits},
		"id with a space":   {budget.Call{Operation: "videos.list", ID: "a b"}, budget.ErrInvalid},
		"id too long":       {budget.Call{Operation: "videos.list", ID: strings.Repeat("x", 129)}, budget.ErrInvalid},
		"label":             {budget.Call{Operation: "videos.list", Labels: budget.Labels{Region: "U S"}}, budget.ErrInvalid},
		"run with newline":  {budget.Call{Operation: "videos.list", Labels: budget.Labels{Run: "a\nb"}}, budget.ErrInvalid},
		"an unknown policy": {budget.Call{Operation: "videos.list", OnStoreError: "maybe"}, budget.ErrInvalid},
	} {
		check.Is(t, check.Err(b.Charge(t.Context(), c.call)), c.want, name)
	}
	for _, lease := range []time.Duration{0, -time.Second, 24*time.Hour + 1} {
		check.Is(t, check.Err(b.Reserve(t.Context(), budget.Call{Operation: "videos.list"}, lease)), budget.ErrInvalid, "a lease of", lease)
	}
	status := must.Get(b.Status(t.Context()))(t)
	must.Equal(t, status.Limits[0].Used, 0, "a bad call was charged")
	for _, name := range []string{"youtube", "youtube/", "/key1", "a/b/c", "you tube/key1"} {
		check.Is(t, check.Err(budget.New(memstore.New(clock), budget.Spec{Name: name, Limits: videoSpec(1).Limits})), budget.ErrInvalid, "budget", name)
	}
}

func TestUnknownOperationAllowed(t *testing.T) {
	spec := videoSpec(150)
	spec.Unknown = budget.Unknown{Allowed: true, Units: 7}
	b := open(t, spec)
	must.Equal(t, must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.insert"}))(t).Units, 7)
	spec.Limits = spec.Limits[1:] // only search is covered
	b = open(t, spec)
	must.Is(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "videos.insert"})), budget.ErrUnknownOperation, "an operation that no limit covers")
}

func TestReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := open(t, videoSpec(150))
		r := must.Get(b.Reserve(ctx, budget.Call{Operation: "videos.list", Units: units(100)}, time.Minute))(t)
		must.Do(t, r.Settle(ctx, 30))
		must.Do(t, r.Settle(ctx, 30))
		must.Is(t, r.Settle(ctx, 31), budget.ErrConflict, "another settlement")
		must.Is(t, r.Release(ctx), budget.ErrConflict, "release after settle")
		must.Is(t, b.Settle(ctx, "nobody", 1), budget.ErrExpired, "settle of an unknown id")
		must.Is(t, r.Settle(ctx, -1), budget.ErrTooManyUnits, "settle of −1")
		status, err := b.Status(ctx)
		if err != nil || status.Limits[0].Used != 30 || *status.Remaining != 120 {
			t.Fatalf("%+v, %v", status, err)
		}
		late := must.Get(b.Reserve(ctx, budget.Call{Operation: "videos.list"}, time.Second))(t)
		time.Sleep(late.Lease + time.Second)
		must.Is(t, late.Release(ctx), budget.ErrExpired, "release past the lease")
	})
}

// stuckStore never answers before its context ends.
type stuckStore struct{ driver.Store }

func (stuckStore) Decide(ctx context.Context, _ driver.Batch) (driver.Decisions, error) {
	<-ctx.Done()
	return driver.Decisions{}, ctx.Err()
}

func TestStoreOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(150)
		spec.Timeout = 250 * time.Millisecond
		b := must.Get(budget.New(stuckStore{}, spec))(t)
		before := time.Now()
		for operation, says := range map[string]string{"videos.list": "policy is closed", "search.list": "store out of reach"} {
			_, err := b.Charge(t.Context(), budget.Call{Operation: operation})
			if !errors.Is(err, budget.ErrUnavailable) || errors.Is(err, budget.ErrExhausted) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want ErrUnavailable saying %q", operation, err, says)
			}
		}
		check.Equal(t, time.Since(before), 2*spec.Timeout, "two decisions took")
		for _, c := range []struct {
			name string
			job  budget.Policy
			call budget.Call
			want budget.Policy
		}{
			{"nothing set", "", budget.Call{Operation: "videos.list"}, budget.Closed},
			{"job", budget.Open, budget.Call{Operation: "videos.list"}, budget.Open},
			{"operation before job", budget.Closed, budget.Call{Operation: "search.list"}, budget.Open},
			{"call before operation", "", budget.Call{Operation: "search.list", OnStoreError: budget.Closed}, budget.Closed},
		} {
			c.call.Labels.Job = "pull"
			_, err := b.ForJob("pull", budget.JobSays{OnStoreError: c.job}).Charge(t.Context(), c.call)
			var refused *budget.RefusedError
			if !errors.As(err, &refused) || refused.OnStoreError != c.want {
				t.Errorf("%s: %v, want policy %s", c.name, err, c.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		check.Is(t, check.Err(b.Charge(ctx, budget.Call{Operation: "videos.list"})), context.DeadlineExceeded, "past the context's deadline")
	})
}

// gateStore holds each decision until it is let through, and notes the sizes.
type gateStore struct {
	driver.Store
	gate  chan struct{}
	mu    sync.Mutex
	sizes []int
}

func (g *gateStore) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	g.mu.Lock()
	g.sizes = append(g.sizes, len(batch.Items))
	g.mu.Unlock()
	select {
	case <-g.gate:
		return g.Store.Decide(ctx, batch)
	case <-ctx.Done():
		return driver.Decisions{}, ctx.Err()
	}
}

// Charges that come while one is under way go together; one that was given up
// in the queue is not sent.
func TestChargesAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := videoSpec(1000)
		spec.Timeout = time.Hour
		gate := &gateStore{Store: memstore.New(clock), gate: make(chan struct{})}
		b := must.Get(budget.New(gate, spec))(t)
		var all sync.WaitGroup
		charge := func(ctx context.Context, want error) {
			all.Go(func() {
				check.Is(t, check.Err(b.Charge(ctx, budget.Call{Operation: "videos.list"})), want, "charge")
			})
			synctest.Wait()
		}
		charge(t.Context(), nil)
		for range driver.MaxBatch + 9 {
			charge(t.Context(), nil)
		}
		givenUp, giveUp := context.WithCancel(t.Context())
		charge(givenUp, context.Canceled)
		giveUp()
		synctest.Wait() // it has left the queue before the gate opens
		close(gate.gate)
		all.Wait()
		if len(gate.sizes) != 3 || gate.sizes[0] != 1 || gate.sizes[1] != driver.MaxBatch || gate.sizes[2] != 9 {
			t.Fatalf("decided in steps of %v, want 1, %d and 9", gate.sizes, driver.MaxBatch)
		}
		must.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Used, driver.MaxBatch+10)
	})
}

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := open(t, videoSpec(150))
		must.Do(t, b.Room(ctx, budget.Needs{"search.list": 1, "videos.list": 50}, budget.Call{}))
		var refused *budget.RefusedError
		must.Is(t, b.Room(ctx, budget.Needs{"search.list": 1, "videos.list": 51}, budget.Call{}), budget.ErrNeverFits, "what never fits")
		must.Get(b.Charge(ctx, budget.Call{Operation: "videos.list", Units: units(100)}))(t)
		time.Sleep(time.Second)
		must.Do(t, b.Room(ctx, budget.Needs{"": 50}, budget.Call{}))
		if err := b.Room(ctx, budget.Needs{"": 50}, budget.Call{Floor: 1}); !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) || refused.Limit != "minute" || refused.RetryAfter != 59*time.Second {
			t.Fatalf("fifty units and a floor: %v", err)
		} else if !strings.HasPrefix(err.Error(), "check whether "+b.Name()+" has 50 units left: exhausted: limit minute has 50 left") {
			t.Errorf("it says %q", err)
		}
		narrow := videoSpec(150)
		narrow.Limits = narrow.Limits[1:]
		must.Is(t, open(t, narrow).Room(ctx, budget.Needs{"videos.list": 1}, budget.Call{}), budget.ErrUnknownOperation, "an operation that no limit covers")
		must.Is(t, b.Room(ctx, budget.Needs{"nothing": 1}, budget.Call{}), budget.ErrUnknownOperation, "an unpriced operation")
		must.Equal(t, must.Get(b.Status(ctx))(t).Limits[0].Used, 100, "looking charged something")

		except := videoSpec(150)
		except.Limits = append(except.Limits, limit.Limit{Name: "others", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour), Operations: []string{"!videos.list"}})
		b = open(t, except)
		must.Get(b.Lock(ctx, budget.LockOrder{Limit: "others", Until: budget.Until{After: time.Minute}, Why: "x"}))(t)
		must.Do(t, b.Room(ctx, budget.Needs{"": 2}, budget.Call{}))
		must.Is(t, b.Room(ctx, budget.Needs{"search.list": 2}, budget.Call{}), budget.ErrLocked, "an operation of the limit that is locked")
	})
}
