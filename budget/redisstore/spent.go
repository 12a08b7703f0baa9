package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Spent implements driver.Store: a page of the ledger in each run of a script.
func (s *Store) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return driver.Spent{}, err
	}
	defer cancel()
	var view driver.Spent
	sums, came := map[string]*driver.SpentRow{}, ""
	for {
		if ctx.Err() != nil {
			return driver.Spent{}, fmt.Errorf("sum the ledger of %s in Redis: %w: it was not read in time; ask for a shorter span", q.Budget, driver.ErrUnavailable)
		}
		r := s.registry(q.Budget)
		a, err := s.ask(ctx, "sum the ledger of", q.Budget, s.scripts.Spent, s.keys(q.Budget, r), func(time.Time) []any {
			return arguments(spentArgs{ledgerArgs{Sig: r.sig, Now: q.Now}, s.maxSteps, q.Span, q.By, q.Run, came})
		})
		if err != nil {
			return driver.Spent{}, err
		}
		if a.status != statusDone {
			continue
		}
		operations := -1
		if q.By == driver.ByOperation {
			operations = len(r.names)
		}
		if !spentRest(operations)(a.rest) {
			return driver.Spent{}, s.strange("sum the ledger of "+q.Budget, a.rest)
		}
		view.Now, view.Since = earlierClock(a.now, q.Now), numberAt(a.rest, 0)
		for _, row := range lists(a.rest, 1) {
			name := text(row, 0)
			if q.By == driver.ByOperation {
				name, _ = limit.CutPair(r.names[number(name)-1])
			}
			sum := sums[name]
			if sum == nil {
				sum = &driver.SpentRow{Name: name}
				sums[name] = sum
			}
			sum.Units += numberAt(row, 1)
			sum.Calls += numberAt(row, 2)
			sum.Open += numberAt(row, 3)
			sum.Observed += numberAt(row, 4)
		}
		if came = text(a.rest, 2); came == "" {
			break
		}
	}
	for _, sum := range sums {
		view.Rows = append(view.Rows, *sum)
	}
	return view, nil
}
