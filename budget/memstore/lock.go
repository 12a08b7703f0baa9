package memstore

import (
	"context"
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// lock closes a limit, or the budget, until an instant.
type lock struct {
	until, since int64
	why          string
}

func (s *Store) lock(ctx context.Context, r driver.Lock) (driver.Locked, error) {
	l, when, err := s.begin(ctx, r.Budget, r.Now)
	if err != nil {
		return driver.Locked{}, err
	}
	until := r.Until
	if until == 0 {
		until = when.later + r.After
	}
	until = min(until, when.later+r.Most)
	old, stood := l.locks[r.Limit]
	stood = stood && old.until > when.now
	switch keeps := stood && !r.Force; {
	case until <= when.now && !stood:
		return driver.Locked{Now: when.clock}, nil
	case until <= when.now, keeps && until <= old.until: // the existing lock stays
	default:
		since := when.now
		if keeps {
			since = old.since
		}
		old, stood = lock{until, since, r.Why}, false
		l.locks[r.Limit] = old
		l.living(when.now)
		l.changes++
	}
	return driver.Locked{Now: when.clock, Until: old.until, Since: old.since, Why: old.why, Stood: stood}, nil
}

func (s *Store) unlock(ctx context.Context, r driver.Unlock) (driver.Unlocked, error) {
	l, when, err := s.enter(ctx, r.Budget, r.Now)
	if err != nil {
		return driver.Unlocked{}, err
	}
	l.last = when.now
	old, stood := l.locks[r.Limit]
	if stood {
		delete(l.locks, r.Limit)
		l.changes++
	}
	return driver.Unlocked{Stood: stood && old.until > when.now}, nil
}

// standing are the locks that hold.
func (l *ledger) standing(now int64) (views []driver.LockView) {
	for _, name := range slices.Sorted(maps.Keys(l.locks)) {
		if k := l.locks[name]; k.until > now {
			views = append(views, driver.LockView{Limit: name, Until: k.until, Since: k.since, Why: k.why})
		}
	}
	return views
}

// lockedUntil is until when locks refuse an item.
func (l *ledger) lockedUntil(batch driver.Batch, item driver.Item) (until int64) {
	if !batch.Observe {
		until = l.locks[""].until
	}
	for _, limit := range batch.Limits {
		if item.CheckedBy(limit) && !limit.Observe {
			until = max(until, l.locks[limit.Name].until)
		}
	}
	return until
}

// askLocks makes the refusal that of the lock that ends last, if it ends no earlier than
// everything else fits. It returns the name of the first lock that only observes.
func (l *ledger) askLocks(batch driver.Batch, item driver.Item, refusal *driver.Decision, refused *bool) (observed string) {
	ask := func(i int, name string, observes bool, remaining int64) bool {
		k := l.locks[name]
		if k.until <= l.last {
			return false
		}
		if observes {
			return true
		}
		if !*refused || k.until >= refusal.RetryAt && !refusal.Locked || k.until > refusal.RetryAt {
			*refusal = driver.Decision{Result: driver.Refused, Limit: i, RetryAt: k.until, Remaining: remaining, Locked: true, Why: k.why}
		}
		*refused = true
		return false
	}
	if ask(-1, "", batch.Observe, 0) {
		observed = driver.ObservedLock
	}
	for i, limit := range batch.Limits {
		if item.CheckedBy(limit) && ask(i, limit.Name, limit.Observe, limit.Remaining(l.used(limit, l.last)+l.held(limit))) && observed == "" {
			observed = limit.Name
		}
	}
	return observed
}
