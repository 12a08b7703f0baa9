package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// byRecords gives the batch's limits what the store last knew of records of what shares need.
// The script compares that with what the ledger has, in the step in which it decides.
func (b *batch) byRecords() {
	if b.mode != deciding || !slices.ContainsFunc(b.Limits, limit.Limit.ByPlan) {
		return
	}
	b.store.mu.Lock()
	known := b.store.planned[b.Budget]
	b.store.mu.Unlock()
	if known == nil {
		known = &plannedText{}
	}
	b.plans, b.Limits = &known.text, known.plans.Of(b.Limits)
}

// replan takes over the records that the ledger has. Walks for other guarantees begin anew.
func (b *batch) replan(a answer) error {
	if !tuple(isPlans)(any(a.rest)) {
		return b.store.strange(b.doing()+" "+b.Budget, a.rest)
	}
	b.store.learnPlans(b.Budget, text(a.rest, 0))
	b.progress, b.staged = nil, nil
	b.byRecords()
	return nil
}

// plannedText are the records of a ledger, as it has them and read.
type plannedText struct {
	text  string
	plans driver.Plans
}

// learnPlans remembers the records of a ledger.
func (s *Store) learnPlans(name, text string) {
	plans, err := driver.ParsePlans(text)
	if err != nil { // replies are checked
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	remembered(s.planned, name, maxLedgers)
	s.planned[name] = &plannedText{text, plans} // callers may still read the one before
}

// changePlan replaces the records of one daemon: it reads them all, and swaps them.
func (s *Store) changePlan(ctx context.Context, c driver.PlanChange) (driver.Planned, error) {
	const doing = "write what shares still need in"
	var old string
	var next *string
	for {
		r := s.registry(c.Budget)
		a, err := s.ask(ctx, doing, c.Budget, s.scripts.Plan, s.keys(c.Budget, r), func(time.Time) []any {
			return arguments(planArgs{ledgerArgs{Sig: r.sig, Now: c.Now}, old, next})
		})
		switch {
		case err != nil:
			return driver.Planned{}, err
		case a.status == statusDone && !tuple(count, isPlans, count)(any(a.rest)):
			return driver.Planned{}, s.strange(doing+" "+c.Budget, a.rest)
		case a.status == statusDone && (numberAt(a.rest, 2) == 1 || a.unsure && next != nil && text(a.rest, 1) == *next):
			return driver.Planned{Now: earlierClock(a.now, c.Now)}, nil
		case a.status == statusDone:
			old = text(a.rest, 1)
			had, _ := driver.ParsePlans(old)
			plans, err := had.With(c, numberAt(a.rest, 0))
			if err != nil {
				return driver.Planned{}, err
			}
			list := plans.String()
			next = &list
		case ctx.Err() != nil:
			return driver.Planned{}, fmt.Errorf("%s %s in Redis: %w: out of time", doing, c.Budget, driver.ErrUnavailable)
		}
	}
}
