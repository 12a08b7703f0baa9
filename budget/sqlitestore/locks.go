package sqlitestore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// lock closes a limit or the whole budget until an instant.
type lock struct {
	until, since int64
	why          string
}

// stands reports whether the lock is in effect; the zero lock is not.
func (k lock) stands(now int64) bool { return k.until > now }

func (s *Store) lockBudget(ctx context.Context, r driver.Lock) (answer driver.Locked, err error) {
	err = s.relock(ctx, r.Budget, r.Now, func(l *ledger, when moment) (err error) {
		if l.b == 0 {
			if err := l.create(when.now); err != nil {
				return err
			}
		}
		answer, err = l.lock(r, when)
		return err
	})
	return answer, err
}

func (s *Store) unlockBudget(ctx context.Context, r driver.Unlock) (answer driver.Unlocked, err error) {
	err = s.relock(ctx, r.Budget, r.Now, func(l *ledger, when moment) error {
		answer.Stood = l.locks[r.Limit].stands(when.now)
		return l.unlock(r.Limit)
	})
	return answer, err
}

// relock changes the locks of a budget at the time of a decision. It writes nothing if
// there is no ledger and the change creates none.
func (s *Store) relock(ctx context.Context, name string, caller int64, change func(*ledger, moment) error) error {
	return s.write(ctx, func(c *conn) error {
		l, err := s.ledger(c, name)
		if err != nil {
			return err
		}
		clock, anchor, err := s.clocks.read(l.anchor)
		if err != nil {
			return err
		}
		when, err := l.enter(clock, caller, s.clocks.oneBoot(l.anchor))
		if err != nil {
			return err
		}
		if err := change(l, when); err != nil || l.b == 0 {
			return err
		}
		l.keep(clock, when.now, anchor)
		l.idleAt = 0 // a removed lock no longer delays it
		l.postpone()
		return l.write()
	})
}

// lock locks within a transaction.
func (l *ledger) lock(r driver.Lock, when moment) (driver.Locked, error) {
	until := r.Until
	if until == 0 {
		until = when.later + r.After
	}
	until = min(until, when.later+r.Most)
	k := l.locks[r.Limit]
	stood := k.stands(when.now)
	if until > when.now && (!stood || r.Force || until > k.until) {
		since := when.now
		if stood && !r.Force {
			since = k.since
		}
		k, stood = lock{until: until, since: since, why: r.Why}, false
		if err := l.putLock(r.Limit, k, when.now); err != nil {
			return driver.Locked{}, err
		}
	}
	if !k.stands(when.now) {
		return driver.Locked{Now: when.clock}, nil
	}
	return driver.Locked{Now: when.clock, Until: k.until, Since: k.since, Why: k.why, Stood: stood}, nil
}

// putLock writes a lock, and removes those that have ended. A fence ends its pass's holds.
func (l *ledger) putLock(name string, k lock, now int64) error {
	for other, old := range l.locks {
		if !old.stands(now) {
			if err := l.unlock(other); err != nil {
				return err
			}
		}
	}
	l.holds.drop(func(k *kept) bool { return k.Fence == name })
	l.locks[name] = k
	l.changes++
	return l.c.exec("INSERT OR REPLACE INTO lock(b, name, until, since, why) VALUES (?, ?, ?, ?, ?)", l.b, name, k.until, k.since, k.why)
}

// unlock removes a lock if it exists.
func (l *ledger) unlock(name string) error {
	if _, ok := l.locks[name]; !ok {
		return nil
	}
	delete(l.locks, name)
	l.changes++
	return l.c.exec("DELETE FROM lock WHERE b = ? AND name = ?", l.b, name)
}

// readLocks reads the locks, including ended ones.
func (l *ledger) readLocks() error {
	var name string
	var k lock
	return l.c.each("SELECT name, until, since, why FROM lock WHERE b = ?", []any{l.b}, func() { l.locks[name] = k },
		&name, &k.until, &k.since, &k.why)
}

// standing returns the locks in effect.
func (l *ledger) standing(now int64) (views []driver.LockView) {
	for _, name := range slices.Sorted(maps.Keys(l.locks)) {
		if k := l.locks[name]; k.stands(now) {
			views = append(views, driver.LockView{Limit: name, Until: k.until, Since: k.since, Why: k.why})
		}
	}
	return views
}

// askLocks attributes a refusal to the lock that ends last, unless a limit refuses the item
// for longer. observed names the first lock that refuses nothing because of observe mode.
func (d *decider) askLocks(item driver.Item, now int64, refusal *driver.Decision) (observed string) {
	switch k := d.l.locks[""]; {
	case !k.stands(now):
	case d.batch.Observe:
		observed = driver.ObservedLock
	default:
		k.refuse(refusal, -1, 0)
	}
	for i, v := range d.limits {
		switch k := d.l.locks[v.limit.Name]; {
		case !k.stands(now) || !item.CheckedBy(v.limit):
		case v.limit.Observe:
			observed = cmp.Or(observed, v.limit.Name)
		default:
			k.refuse(refusal, i, d.remaining(i))
		}
	}
	return observed
}

// refuse attributes a refusal to the lock, unless a limit refuses the item for longer or
// another lock ends no earlier.
func (k lock) refuse(refusal *driver.Decision, limit int, remaining int64) {
	binds := refusal.Result != driver.Refused || k.until > refusal.RetryAt || k.until == refusal.RetryAt && !refusal.Locked
	if binds {
		*refusal = driver.Decision{Result: driver.Refused, Limit: limit, RetryAt: k.until, Remaining: remaining, Locked: true, Why: k.why}
	}
}
