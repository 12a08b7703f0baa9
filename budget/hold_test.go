package budget_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// holding is a budget of 100 units a day, and 50 calls of "get" an hour, which a process asks
// beside a memory of refusals.
func holding(t *testing.T) *budget.Budget {
	return must.Get(budget.New(refusals.New(memstore.New(nil), time.Hour), budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "search": {Units: 10}},
		Limits: []limit.Limit{
			{Name: "daily", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
			{Name: "each", Limit: 50, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), PerOperation: true},
		},
	}))(t)
}

// A pass's charges draw from what it holds, however it charges; others do without. What is
// left is back when it ends.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
		needs := []budget.Need{{Operation: "search", Units: 80, Calls: 8}, {Operation: "get", Units: 10, Calls: 10}}
		receipt := must.Get(b.Hold(ctx, pass, needs, time.Hour, time.Minute))(t)
		check.Equal(t, receipt.Limit, "daily", "the tightest limit")
		check.Equal(t, receipt.Remaining, 10, "remaining")

		status := must.Get(b.Status(ctx))(t)
		check.Equal(t, *status.Remaining, 10, "remaining beside the hold")
		check.Equal(t, status.Limits[0].Used, 0, "used")
		check.Equal(t, status.Limits[0].Held[0], budget.Held{Job: "pull", Amount: 90, Until: time.Now().UTC().Add(time.Minute)}, "held")

		call := budget.Call{Operation: "search"}
		must.Get(b.Charge(ctx, call))(t)
		_, err := b.Charge(ctx, call)
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) || refused.RetryAfter != time.Minute {
			t.Fatalf("a call of nobody: %v, want it refused until the hold's end", err)
		}
		check.Equal(t, refused.Held, 90, "held beside it")
		if !strings.Contains(err.Error(), "limit daily has 0 left beside 90 that running passes hold; fits in 1m0s") {
			t.Errorf("it says %v", err)
		}
		check.Equal(t, b.Soonest(refused), 2*time.Second, "the soonest")
		why := must.Get(b.Why(ctx, call))(t)
		check.Equal(t, why.Limits[0].Short, 10, "too little for a call of nobody")

		call.Labels, call.Fence = pass.Labels, pass.Fence
		reserved := must.Get(b.Reserve(ctx, call, time.Minute))(t)
		must.Get(b.Wait(ctx, call))(t)
		must.Do(t, reserved.Release(ctx))
		status = must.Get(b.Status(ctx))(t)
		check.Equal(t, status.Limits[0].Used, 20, "used")
		check.Equal(t, status.Limits[0].Held[0].Amount, 80, "held after a draw and a release")

		time.Sleep(30 * time.Second)
		held := must.Get(b.RenewHolds(ctx, "pull", 7, time.Minute))(t)
		check.Equal(t, len(held), 1, "renewed holds")
		time.Sleep(40 * time.Second)
		must.Get(b.EndHold(ctx, "pull", 7, ""))(t)
		must.Get(b.EndHold(ctx, "pull", 7, ""))(t)
		check.Equal(t, must.Get(b.Charge(ctx, budget.Call{Operation: "search"}))(t).Remaining, 70, "remaining once it ended")
		check.Equal(t, len(must.Get(b.RenewHolds(ctx, "pull", 7, time.Minute))(t)), 0, "renewed holds")
	})
}

// A hold that does not fit is refused like a call, and says what it is.
func TestHoldRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
		units := int64(60)
		must.Get(b.Charge(ctx, budget.Call{Operation: "get", Units: &units}))(t)
		_, err := b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 50, Calls: 5}}, time.Hour, time.Minute)
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || refused.RetryAfter != 24*time.Hour || !strings.HasPrefix(err.Error(), "hold 50 units of shop/main for job pull: exhausted: limit daily has 40 left") {
			t.Fatalf("a hold of 50 of 40: %v", err)
		}
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 101}}, 0, time.Minute)), budget.ErrNeverFits)
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 60, Calls: 51}}, time.Hour, time.Minute)), budget.ErrNeverFits)
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 1, Calls: 1}}, 0, 0)), budget.ErrInvalid)
		check.Is(t, second(b.Hold(ctx, budget.Call{}, []budget.Need{{Operation: "search", Units: 1, Calls: 1}}, 0, time.Minute)), budget.ErrInvalid)
		check.Is(t, second(b.Hold(ctx, pass, nil, 0, time.Minute)), budget.ErrInvalid)
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "get", Units: 1}, {Operation: "get", Calls: 1}}, 0, time.Minute)), budget.ErrInvalid)
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "unknown", Units: 1}}, 0, time.Minute)), budget.ErrUnknownOperation)
		must.Do(t, b.Fence(ctx, "pull", 7))
		check.Is(t, second(b.Hold(ctx, pass, []budget.Need{{Operation: "get", Units: 1, Calls: 1}}, 0, time.Minute)), budget.ErrFenced)
	})
}

// What was refused before a pass holds units is not remembered against its draws.
func TestHoldForgetsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, spec := t.Context(), holding(t).Spec()
		spec.Limits = spec.Limits[:1] // one that checks all operations alike
		b := must.Get(budget.New(refusals.New(memstore.New(nil), time.Hour), spec))(t)
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
		must.Get(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 100, Calls: 10}}, time.Hour, time.Hour))(t)
		call := pass
		call.Operation = "get"
		check.Is(t, second(b.Charge(ctx, call)), budget.ErrExhausted)
		call.Operation = "search"
		check.NoError(t, second(b.Charge(ctx, call)), "a draw of another operation after a refusal")
	})
}

// A waiter of the process takes what a hold gives back at once.
func TestHoldEndWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
		must.Get(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 100, Calls: 10}}, time.Hour, time.Hour))(t)
		began := time.Now()
		time.AfterFunc(time.Second, func() { must.Get(b.EndHold(ctx, "pull", 7, ""))(t) })
		must.Get(b.Wait(ctx, budget.Call{Operation: "search"}))(t)
		check.Equal(t, time.Since(began).Truncate(100*time.Millisecond), time.Second, "wait, but for the jitter")
	})
}

// A hold that waits with others for the store is made, and gets its own answer, also if one of
// them gives up.
func TestAHoldInAFlightThatOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{Store: memstore.New(clock), letGo: make(chan struct{})}
		b := must.Get(budget.New(store, videoSpec(100)))(t)
		impatient, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		begin := func(do func()) {
			all.Go(do)
			synctest.Wait()
		}
		begin(func() { must.Get(b.Charge(t.Context(), call("first", 1)))(t) })
		begin(func() { check.Is(t, second(b.Charge(impatient, call("a", 1))), context.Canceled) })
		begin(func() { must.Get(b.Charge(t.Context(), call("b", 2)))(t) })
		begin(func() {
			pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
			receipt := must.Get(b.Hold(t.Context(), pass, []budget.Need{{Operation: "videos.list", Units: 30, Calls: 3}}, 0, time.Minute))(t)
			check.Equal(t, receipt.Units, 30, "units of the hold's receipt")
		})
		cancel()
		synctest.Wait()
		close(store.letGo)
		all.Wait()
		status := must.Get(b.Status(t.Context()))(t)
		must.Equal(t, len(status.Limits[0].Held), 1, "holds")
		check.Equal(t, status.Limits[0].Used, 3, "used")
	})
}

func second[T any](_ T, err error) error { return err }

// Needs of several calls fit at one instant, which a look names; what a hold does not count in
// is looked at apart.
func TestRoomOfSeveralCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		for range 10 {
			must.Get(b.Charge(ctx, budget.Call{Operation: "search"}))(t)
			time.Sleep(time.Minute)
		}
		var refused *budget.RefusedError
		err := b.Room(ctx, budget.Needs{"search": 3, "get": 2}, budget.Call{})
		if !errors.As(err, &refused) || refused.RetryAfter != 24*time.Hour-7*time.Minute {
			t.Fatalf("room for 32 units: %v, want it when the fourth charge returns", err)
		}
		check.NoError(t, b.RoomBeside(ctx, budget.Needs{"search": 3}, budget.Call{}, time.Hour), "no limit is shorter than the pass")
		for range 40 {
			must.Get(b.Charge(ctx, budget.Call{Operation: "get", Units: new(int64)}))(t)
		}
		check.Is(t, b.RoomBeside(ctx, budget.Needs{"get": 11}, budget.Call{}, time.Hour+time.Microsecond), budget.ErrExhausted)
		check.NoError(t, b.RoomBeside(ctx, budget.Needs{"get": 10}, budget.Call{}, time.Hour+time.Microsecond), "as many calls as are left")
	})
}

// A budget keeps so many holds at a time.
func TestTooManyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		ask := func(number int64) error {
			return second(b.Hold(ctx, budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: number}, []budget.Need{{Operation: "get"}}, 0, time.Minute))
		}
		for number := range int64(driver.MaxHolds) {
			must.Do(t, ask(number+1))
		}
		check.Is(t, ask(1000), budget.ErrTooManyHolds)
		must.Get(b.EndHold(ctx, "pull", 1, ""))(t)
		check.NoError(t, ask(1000), "one more once another ended")
	})
}

// What a pass holds is no room for others.
func TestRoomBesideAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Labels: budget.Labels{Job: "pull"}, Fence: 7}
		must.Get(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 80, Calls: 8}}, time.Hour, time.Minute))(t)
		check.NoError(t, b.Room(ctx, budget.Needs{"search": 1, "get": 10}, budget.Call{}), "room for 20 units")
		check.Is(t, b.Room(ctx, budget.Needs{"search": 1, "get": 11}, budget.Call{}), budget.ErrExhausted)
	})
}

// A call above its floor is drawn from a hold, however it is made; the same call beside the hold
// never fits.
func TestHoldAboveFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := holding(t), t.Context()
		defer func() { must.Do(t, b.Close()) }()
		pass := budget.Call{Operation: "search", Labels: budget.Labels{Job: "pull"}, Fence: 7}
		must.Get(b.Hold(ctx, pass, []budget.Need{{Operation: "search", Units: 30, Calls: 3}}, time.Hour, time.Minute))(t)
		call := pass
		call.Floor = 95
		must.Get(b.Wait(ctx, call))(t)
		must.Get(b.Charge(ctx, call))(t)
		must.Get(b.WaitReserve(ctx, call, time.Minute))(t)
		for _, charge := range []func(context.Context, budget.Call) (budget.Receipt, error){b.Charge, b.Wait} {
			must.Is(t, check.Err(charge(ctx, call)), budget.ErrNeverFits, "once the hold is drawn")
			other := call
			other.Fence = 0
			must.Is(t, check.Err(charge(ctx, other)), budget.ErrNeverFits, "beside the hold")
		}
	})
}
