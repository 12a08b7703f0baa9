package refusals

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Store is a driver.Store that remembers what the one it wraps refused. It is safe for
// concurrent use.
type Store struct {
	driver.Store
	span   time.Duration
	closed atomic.Bool
	seed   maphash.Seed
	// memories are by the hash of a budget's name, so that any number of budgets takes
	// bounded room. Budgets that share one forget more than they must.
	memories [256]memory
}

var _ driver.Store = (*Store)(nil)

// New wraps a store, which the result closes. It remembers a refusal for at most span;
// 0: not at all. To see all changes that this process makes, it goes around package
// outage, and all budgets of the process share it.
func New(inner driver.Store, span time.Duration) *Store {
	return &Store{Store: inner, span: span, seed: maphash.MakeSeed()}
}

// Decide implements driver.Store. Items that a remembered refusal answers are not sent to
// the store; Decisions.Now is then an estimate of the store's clock if none is sent.
func (s *Store) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	if slices.ContainsFunc(batch.Items, driver.Item.IsHold) { // its pass may then draw what it was refused
		defer s.memory(batch.Budget).forget()
	}
	if len(batch.Finishes) > 0 { // what was refused before may fit sooner now
		s.memory(batch.Budget).forget()
		defer s.memory(batch.Budget).forget()
		return s.Store.Decide(ctx, batch)
	}
	if s.span <= 0 || s.closed.Load() || ctx.Err() != nil {
		return s.Store.Decide(ctx, batch)
	}
	asked := time.Now()
	m := s.memory(batch.Budget)
	found, changes := m.answers(batch, asked)
	if found == nil {
		decided, err := s.Store.Decide(ctx, batch)
		if err == nil {
			m.learn(batch, decided, s.span, asked, changes)
		}
		return decided, err
	}
	left := batch
	left.Items = nil
	for i, item := range batch.Items {
		if found.items[i].Result == 0 {
			left.Items = append(left.Items, item)
		}
	}
	if len(left.Items) == 0 {
		return driver.Decisions{Now: found.now, Items: found.items}, nil
	}
	decided, err := s.Store.Decide(ctx, left)
	if err != nil {
		return decided, err
	}
	m.learn(left, decided, s.span, asked, changes)
	for i, next := 0, 0; i < len(found.items); i++ {
		if found.items[i].Result == 0 {
			found.items[i] = decided.Items[next]
			next++
		}
	}
	decided.Items = found.items
	return decided, nil
}

// Finish implements driver.Store. Whatever its outcome, the units of the reservations may be
// back.
func (s *Store) Finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	defer s.memory(finishes.Budget).forget()
	return s.Store.Finish(ctx, finishes)
}

// Change implements driver.Store. A report adds to what is used and never gives back;
// after any other change, which is rare, nothing is remembered of any budget.
func (s *Store) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	switch change.(type) {
	case driver.Report, driver.Refusals: // nothing fits earlier
	default:
		defer func() {
			for i := range s.memories {
				s.memories[i].forget()
			}
		}()
	}
	return s.Store.Change(ctx, change)
}

// Close implements driver.Store.
func (s *Store) Close() error {
	s.closed.Store(true)
	return s.Store.Close()
}

// memory is where a budget's refusals are remembered.
func (s *Store) memory(budget string) *memory {
	return &s.memories[maphash.String(s.seed, budget)%uint64(len(s.memories))]
}
