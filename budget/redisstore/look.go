package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Look implements budget.Store. It brings the totals up to now as a decision
// on nothing would.
func (s *Store) Look(ctx context.Context, look budget.Look) (budget.View, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return budget.View{}, err
	}
	defer cancel()
	run := s.newBatch(ctx, budget.Batch{Budget: look.Budget, Now: look.Now, Limits: look.Limits}, time.Now())
	run.looking, run.returns = true, make([]int64, len(look.Limits))
	for {
		done, err := run.step(ctx)
		if err != nil {
			return budget.View{}, err
		}
		if done && run.returnsKnown() {
			return run.view(), nil
		}
		if ctx.Err() != nil {
			return budget.View{}, fmt.Errorf("look at %s in Redis: %w: its totals were not brought up to now in time; look again", look.Budget, budget.ErrUnavailable)
		}
	}
}

// returnsKnown reports whether the script was told, for each calendar, when its
// first entry returns; where not, that is noted for the next run.
func (b *batch) returnsKnown() bool {
	known := true
	for i, seen := range b.looks {
		least := numberAt(seen, 2)
		if least == 0 || b.Limits[i].Window.Kind != budget.CalendarKind {
			continue
		}
		if at := b.Limits[i].Window.Returns(least); at != b.returns[i] {
			b.returns[i], known = at, false
		}
	}
	return known
}

// view puts the script's looks into the caller's terms.
func (b *batch) view() budget.View {
	view := budget.View{Now: b.decided.Now, Limits: make([]budget.LimitView, len(b.Limits))}
	for i, seen := range b.looks {
		used, floor, least, back := numberAt(seen, 0), numberAt(seen, 1), numberAt(seen, 2), numberAt(seen, 3)
		v := &view.Limits[i]
		v.Used = used
		limit := b.Limits[i]
		if least != 0 {
			v.NextAt, v.NextAmount = limit.Window.Returns(least), back
			if limit.Window.Kind == budget.CalendarKind {
				v.NextAmount = used - back
			}
		}
		if floor > limit.Window.Cut(b.seen) && b.born <= floor {
			v.Since = floor + 1
		}
	}
	return view
}
