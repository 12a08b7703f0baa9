package jobs

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// turns is a State with a bound on how many changes are under way at once: those of
// a thousand jobs that tick in one second wait here, and not in the store until its
// timeout.
type turns struct {
	State
	free chan struct{} // as many as may be under way
}

func newTurns(of State, most int) *turns { return &turns{of, make(chan struct{}, most)} }

// SwapJob implements State.
func (t *turns) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	select {
	case t.free <- struct{}{}:
		defer func() { <-t.free }()
	case <-ctx.Done():
		return false, fmt.Errorf("change job %s, while others are changed: %w: %w", swap.Job, budget.ErrUnavailable, context.Cause(ctx))
	}
	return t.State.SwapJob(ctx, swap)
}
