package outage

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Change implements driver.Store.
func (s *Store) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	switch c := change.(type) {
	case driver.Lock:
		return s.lock(ctx, c)
	case driver.Unlock:
		return s.unlock(ctx, c)
	case driver.Report:
		return s.report(ctx, c)
	case driver.Reset: // the host forgets the budget too
		changed, err := s.inner.Change(ctx, c)
		if err != nil {
			return nil, err
		}
		return changed, s.memory.forget(c.Budget)
	}
	return s.inner.Change(ctx, change)
}

// lock locks a budget. While the store is out of reach, only this host's processes
// obey the lock; the store hears of it with their next call on the budget. A lock by
// hand, or a fence, fails then: it is meant for every host, and no upstream repeats it.
//
// The host does not remember fences. Only the store refuses items behind one: while the
// store is out of reach the allowance decides them like any others, whoever is fenced.
func (s *Store) lock(ctx context.Context, r driver.Lock) (driver.Locked, error) {
	var locked driver.Locked
	_, err := s.reach(ctx, r.Budget, func(ctx context.Context) (err error) {
		locked, err = driver.Apply(ctx, s.inner, r)
		return err
	})
	if unreached(ctx, err) && s.o.Dir != "" && !r.Force && !driver.IsFence(r.Limit) {
		return s.lockAlone(r)
	}
	if err == nil && locked.Until > locked.Now {
		s.remember(r.Budget, r.Limit, locked.Now, locked.Until, locked.Why, false)
		s.see(ctx, r.Budget, s.memory.asks(r.Budget))
	}
	return locked, err
}

// see looks at the ledger after a change, to learn its mark, which the answer to a change
// does not have. Without the mark nobody would notice that the change was lost. If the look
// fails, the next call's answer has the mark.
func (s *Store) see(ctx context.Context, name string, limits []limit.Limit) {
	mark, others := s.memory.mark(name)
	look := driver.Look{Budget: name, Now: s.wall(), Limits: limits, Mark: mark, Others: others, Hosts: s.o.Hosts}
	view, err := s.lookWith(ctx, look)
	if err == nil {
		err = s.memory.looked(look, view)
	} else {
		s.memory.unanswered(name, others)
	}
	if err != nil {
		s.log.Debug("the ledger's mark after a lock or a report is not known yet", "budget", name, "error", err)
	}
}

// lockAlone locks for this host only, by its clock.
func (s *Store) lockAlone(r driver.Lock) (driver.Locked, error) {
	until := r.Until
	if until == 0 {
		until = r.Now + r.After
	}
	until = min(until, r.Now+r.Most)
	s.memory.refresh(r.Budget)
	if left, t := s.memory.refusedFor(r.Budget, r.Limit); left > 0 && t.Locked && until <= r.Now+left {
		return driver.Locked{Now: r.Now, Until: r.Now + left, Why: t.Why, Stood: true}, nil
	}
	if until <= r.Now {
		return driver.Locked{Now: r.Now}, nil
	}
	s.remember(r.Budget, r.Limit, r.Now, until, r.Why, true)
	s.log.Warn("locked on this host alone: the store is out of reach", "budget", r.Budget, "limit", r.Limit, "why", r.Why)
	return driver.Locked{Now: r.Now, Until: until, Since: r.Now, Why: r.Why}, nil
}

// standing is a lock that the host knows.
type standing struct {
	wait  int64 // µs it still lasts
	until int64 // its end on the store's clock, µs; 0: an older version did not note it
	why   string
}

// locks returns the locks that last still, by the limit's name; "" is the whole budget. alone:
// only those that the store has not heard of.
func (m *memory) locks(name string, alone bool) (found map[string]standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for limit, t := range m.of(name).Facts {
		if !t.Locked || alone && !t.Alone {
			continue
		}
		if boot, now, err := m.boot(); err == nil && t.Boot == boot && t.Until > now {
			if found == nil {
				found = map[string]standing{}
			}
			found[limit] = standing{t.Until - now, t.End, t.Why}
		}
	}
	return found
}

// relock repeats in the store the locks that this host knows, since the store may have lost
// them; with alone only those that it made alone, unheard by the store.
func (s *Store) relock(ctx context.Context, name string, now int64, alone bool) error {
	if alone && len(s.memory.locks(name, alone)) > 0 {
		s.memory.refresh(name) // another process may have told the store
	}
	for limit, lock := range s.memory.locks(name, alone) {
		r := driver.Lock{Budget: name, Limit: limit, Now: now, Until: lock.until, Most: driver.MaxLock, Why: lock.why}
		if lock.until == 0 {
			r.After = lock.wait
		}
		locked, err := driver.Apply(ctx, s.inner, r)
		if err != nil {
			return fmt.Errorf("repeat in the store the locks that this host knows: %w", err)
		}
		if alone {
			s.remember(name, limit, locked.Now, locked.Until, locked.Why, false)
		}
	}
	return nil
}

// remember notes a lock as memory.locked does, unless it is a fence. An empty limit is the
// whole budget.
func (s *Store) remember(name, limit string, now, end int64, why string, alone bool) {
	if driver.IsFence(limit) {
		return
	}
	if err := s.memory.locked(name, limit, now, end, why, alone); err != nil {
		s.forgetful(name, err)
	}
}

func (s *Store) unlock(ctx context.Context, r driver.Unlock) (driver.Unlocked, error) {
	var unlocked driver.Unlocked
	_, err := s.reach(ctx, r.Budget, func(ctx context.Context) (err error) {
		unlocked, err = driver.Apply(ctx, s.inner, r)
		return err
	})
	if err == nil {
		s.remember(r.Budget, r.Limit, 0, 0, "", false)
	}
	return unlocked, err
}

// report passes on what an upstream reports. It first records the host's journal and what
// the store has lost: these charges explain what the upstream counts.
func (s *Store) report(ctx context.Context, r driver.Report) (driver.Drift, error) {
	var drifted driver.Drift
	_, err := s.reach(ctx, r.Budget, func(ctx context.Context) (err error) {
		if err = s.replay(ctx, r.Budget, r.Limits, showsNothing); err != nil {
			return err
		}
		if err = s.recover(ctx, r.Budget, r.Now, r.Limits); err != nil {
			return err
		}
		drifted, err = driver.Apply(ctx, s.inner, r)
		return err
	})
	if err == nil && drifted.Added > 0 {
		s.see(ctx, r.Budget, r.Limits)
	}
	return drifted, err
}

// Export implements driver.Store. It asks the store even while the breaker is open.
func (s *Store) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	return s.inner.Export(ctx, export, to)
}
