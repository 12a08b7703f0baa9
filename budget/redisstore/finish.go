package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Finish implements budget.Store.
func (s *Store) Finish(ctx context.Context, f budget.Finish) (budget.Finished, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return budget.Finished{}, err
	}
	defer cancel()
	started := time.Now()
	if _, known := s.clockOffset(); !known && !f.Deadline.IsZero() {
		if err := s.probe(ctx, f.Budget); err != nil {
			return budget.Finished{}, err
		}
	}
	deadline := s.deadlines(f.Now, started).of(f.Deadline)
	verb := "s"
	if f.Release {
		verb = "r"
	}
	for {
		r := s.registry(f.Budget)
		a, err := s.ask(ctx, "finish a reservation of", f.Budget, s.scripts.finish, r, []any{len(r.names), f.Now, f.ID, verb, f.Units, deadline})
		if err != nil {
			return budget.Finished{}, err
		}
		if a.status == statusDone {
			return budget.Finished{
				Result: budget.FinishResult(numberAt(a.rest, 0)), Replayed: numberAt(a.rest, 1) == 1,
				At: numberAt(a.rest, 2), Now: a.now,
			}, nil
		}
		if ctx.Err() != nil {
			return budget.Finished{}, fmt.Errorf("finish a reservation of %s in Redis: %w: out of time", f.Budget, budget.ErrUnavailable)
		}
	}
}
