package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// perOperation is a budget with a limit for each operation and one for all.
func perOperation(t *testing.T) *budget.Budget {
	t.Helper()
	b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
		Name: "chat/team", Costs: map[string]budget.Cost{"post": {Units: 1}, "read": {Units: 1}}, Unknown: budget.Unknown{Allowed: true, Units: 1},
		Limits: []limit.Limit{
			{Name: "all", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
			{Name: "each", Limit: 2, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Minute), PerOperation: true},
			{Name: "open", Limit: 1, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		},
	}))(t)
	return b
}

func TestLimitPerOperation(t *testing.T) {
	b := perOperation(t)
	charge := func(operation string) error {
		_, err := b.Charge(t.Context(), budget.Call{Operation: operation})
		return err
	}
	for _, operation := range []string{"post", "post", "read", "read", "new", "new"} {
		must.Do(t, charge(operation))
	}
	for _, operation := range []string{"post", "new"} {
		var refused *budget.RefusedError
		if err := charge(operation); !errors.As(err, &refused) || refused.Limit != "each:"+operation {
			t.Errorf("%s: %v, want a refusal by its own limit", operation, err)
		}
		if _, err := b.Would(t.Context(), budget.Call{Operation: operation}, 0); !errors.As(err, &refused) || refused.Limit != "each:"+operation {
			t.Errorf("%s: %v, want the same when it is only looked at", operation, err)
		}
	}
	status := must.Get(b.Status(t.Context()))(t)
	var names []string
	for _, l := range status.Limits {
		names = append(names, l.Name)
	}
	if len(names) != 4 || names[1] != "each:post" || names[2] != "each:read" || status.Limits[1].Used != 2 {
		t.Errorf("status has %v", names)
	}
}

// A caller that waits for one operation's limit holds up no caller of another, and a limit on
// open reservations is waited for with a reservation.
func TestWaitPerOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := perOperation(t)
		began := time.Now()
		for range 2 {
			must.Get(b.Charge(t.Context(), budget.Call{Operation: "post"}))(t)
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.Wait(t.Context(), budget.Call{Operation: "post"})
			done <- err
		}()
		synctest.Wait()
		if _, err := b.Wait(t.Context(), budget.Call{Operation: "read"}); err != nil || time.Since(began) > time.Second {
			t.Errorf("another operation waited %s: %v", time.Since(began), err)
		}
		if err := <-done; err != nil || time.Since(began) < time.Minute {
			t.Errorf("waited %s: %v", time.Since(began), err)
		}
		first := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "read"}, time.Hour))(t)
		time.AfterFunc(time.Minute, func() { _ = first.Settle(t.Context(), 1) })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		second, err := b.WaitReserve(ctx, budget.Call{Operation: "read"}, time.Minute) // the lease ends past the deadline
		must.Do(t, err)
		check.Equal(t, second.Units, 1)
	})
}
