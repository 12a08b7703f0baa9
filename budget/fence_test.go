package budget_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// However a pass that is declared dead asks, it is refused at once and charged
// nothing, in observe mode too; others of its job are not.
func TestFencedCalls(t *testing.T) {
	for _, observe := range []bool{false, true} {
		b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
			Name: "shop/main", Observe: observe, Costs: map[string]budget.Cost{"get": {Units: 1}},
			Limits: []limit.Limit{{Name: "daily", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
		}))(t)
		must.Do(t, b.Fence(t.Context(), "pull", 7))
		call := func(job string, fence int64) budget.Call {
			return budget.Call{Operation: "get", Labels: budget.Labels{Job: job}, Fence: fence}
		}
		for verb, ask := range map[string]func(context.Context, budget.Call) error{
			"charge":  func(ctx context.Context, c budget.Call) error { _, err := b.Charge(ctx, c); return err },
			"reserve": func(ctx context.Context, c budget.Call) error { _, err := b.Reserve(ctx, c, time.Minute); return err },
			"wait":    func(ctx context.Context, c budget.Call) error { _, err := b.Wait(ctx, c); return err },
			"wait reserve": func(ctx context.Context, c budget.Call) error {
				_, err := b.WaitReserve(ctx, c, time.Minute)
				return err
			},
			"would": func(ctx context.Context, c budget.Call) error { _, err := b.Would(ctx, c, 0); return err },
		} {
			err := ask(t.Context(), call("pull", 7))
			var refused *budget.RefusedError
			if !errors.Is(err, budget.ErrFenced) || errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || refused.RetryAfter != 0 {
				t.Errorf("%s, observe %t: %v, want it fenced off", verb, observe, err)
			}
			check.NoError(t, ask(t.Context(), call("pull", 8)), verb, "of another pass")
			check.NoError(t, ask(t.Context(), call("push", 7)), verb, "of another job")
		}
		spent := must.Get(b.Spent(t.Context(), budget.ByOperation, 0))(t)
		check.Equal(t, spent.Total.Calls, 8)
	}
}
