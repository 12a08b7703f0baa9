package memstore

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/quotactl/quotactl/budget"
)

// lost reports whether a charge that was acknowledged should be held and is not
// there.
func (l *ledger) lost(newest budget.Acknowledged, limits []budget.Limit, now int64) bool {
	lower := l.horizon(now)
	for _, limit := range limits {
		if limit.Window.Kind != budget.Bucket {
			lower = min(lower, limit.Window.Cut(now))
		}
	}
	if newest.ID == "" || newest.At <= max(l.gone, l.merged, lower) {
		return false
	}
	return !slices.ContainsFunc(l.entries, func(e *entry) bool { return e.item.ID == newest.ID && !e.noID })
}

func lost(name string) error {
	return fmt.Errorf("memory store: budget %s: %w", name, budget.ErrLost)
}

// pseudo is how much of what a limit has used stands under a pseudo-operation.
func (l *ledger) pseudo(limit budget.Limit, operation string, now int64) (amount int64) {
	if limit.Window.Kind == budget.Bucket {
		return 0
	}
	for _, e := range l.entries {
		if e.item.Operation == operation && e.score > max(limit.Window.Cut(now), l.floor(limit)) && e.counts(limit) {
			amount += e.amount(limit)
		}
	}
	return amount
}

// Recover implements budget.Store. Memory is never damaged.
func (s *Store) Recover(ctx context.Context, r budget.Recovery) (budget.Recovered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.bring(ctx, r.Budget, r.Now, r.Limits)
	if err != nil {
		return budget.Recovered{}, err
	}
	now := when.now
	answer := budget.Recovered{Now: when.clock, Amounts: make([]int64, len(r.Limits))}
	for i, limit := range r.Limits {
		if r.Used[i] >= 0 && l.lost(r.Newest, r.Limits, now) {
			answer.Amounts[i] = l.recover(limit, r.Used[i], min(r.At, now), now)
		}
	}
	return answer, nil
}

// recover records what is missing of one limit, which had used so much at an
// instant.
func (l *ledger) recover(limit budget.Limit, used, at, now int64) int64 {
	switch limit.Window.Kind {
	case budget.Bucket:
		return l.meters[limit.Meter()].refill(limit.Limit, used, at, now)
	case budget.Concurrent:
		return 0
	}
	cut := max(limit.Window.Cut(now), l.floor(limit))
	missing, had, until := used, int64(0), at
	kept := l.entries[:0:0]
	for _, e := range l.entries {
		switch {
		case e.item.ID == budget.RecoveredID(limit.Name):
			if e.score > cut {
				had, until = e.amount(limit), max(at, e.score)
			}
			continue
		case e.score > cut && e.score <= at && e.counts(limit):
			missing -= e.amount(limit)
		}
		kept = append(kept, e)
	}
	amount := max(missing, had)
	l.entries = kept
	if at = max(until, l.earliest(now)); amount <= 0 || at <= cut {
		return 0
	}
	l.record(limit, budget.RecoveredID(limit.Name), budget.RecoveredOperation(limit.Name), amount, at)
	return amount
}

// record adds a charge that counts in one limit alone.
func (l *ledger) record(limit budget.Limit, id, operation string, amount, at int64) {
	e := &entry{item: budget.Item{ID: id, Operation: operation}, start: at, score: at, calls: 1, row: true}
	if e.units = amount; limit.Counts == budget.CountCalls {
		e.units, e.calls = 0, amount
	}
	l.entries = append(l.entries, e)
}

// refill adds what is left of a level seen earlier, at most until the meter is
// full.
func (m *meter) refill(full, used, at, now int64) int64 {
	left := new(big.Rat).Sub(rat(used), m.drained(now-at))
	add := min(ceil(left), full-m.used(now))
	if add <= 0 {
		return 0
	}
	m.add(rat(add), now)
	return add
}

// Reset implements budget.Store.
func (s *Store) Reset(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	old, now := s.ledgers[name], s.clock()
	if old != nil {
		now = max(now, old.last)
	}
	l := newLedger()
	l.born, l.last, l.newest, l.gone = now, now, now, now
	s.ledgers[name] = l
	return nil
}
