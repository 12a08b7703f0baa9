package sqlitestore

import (
	"context"
	"errors"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// errLost is ErrLost if lost, else nil.
func errLost(lost bool) error {
	if lost {
		return driver.ErrLost
	}
	return nil
}

// recover makes a recovery. If the ledger is damaged, it begins a new one first.
func (s *Store) recover(ctx context.Context, r driver.Recovery) (driver.Recovered, error) {
	answer := driver.Recovered{Amounts: make([]int64, len(r.Limits))}
	d := &decider{s: s, batch: driver.Batch{Budget: r.Budget, Now: r.Now, Limits: r.Limits}, walks: map[walkKey]*walk{}}
	err := d.repeat(ctx, func(c *conn) error { return d.recover(c, r, &answer) })
	if !errors.Is(err, driver.ErrDamaged) {
		return answer, err
	}
	if err := s.forget(ctx, r.Budget, false); err != nil {
		return answer, err
	}
	answer, err = s.recover(ctx, r)
	answer.Anew = true
	return answer, err
}

// recover continues with a recovery until it is done or the steps run out.
func (d *decider) recover(c *conn, r driver.Recovery, answer *driver.Recovered) (err error) {
	d.steps, d.done = d.s.steps, false
	if answer.Now, err = d.open(c); err != nil {
		return err
	}
	if d.done, err = d.advance(d.l.last); err != nil {
		return err
	}
	lost := false
	if d.done {
		if lost, err = d.l.lost(r.Mark, r.Limits, d.l.last); err != nil {
			return err
		}
		lost = lost || slices.Contains(r.Gone, d.l.id)
	}
	for i := range d.limits {
		if !lost || r.Used[i] < 0 {
			continue
		}
		own, id := r.OwnOf(i)
		if answer.Amounts[i], err = d.limits[i].recover(r.Used[i], min(r.At, d.l.last), own, id); err != nil {
			return err
		}
	}
	if lost {
		d.l.report(r)
	}
	answer.Mark = d.l.mark(d.l.last)
	return d.close()
}

// recover records what is missing of one limit. The limit had used used at an instant, and
// the host charged own of that itself.
func (v *counting) recover(used, at, own int64, ownID string) (int64, error) {
	l := v.l
	switch v.limit.Window.Kind {
	case limit.Bucket:
		added := v.m.refillBy(v.limit.Limit, limit.Level{Used: used, At: at}, l.last)
		v.noteFound(limit.RecoveredOperation(v.limit.Name), added)
		return added, nil
	case limit.Concurrent:
		return 0, nil
	}
	cut := max(v.w.cutAt(l.last), v.w.floor)
	id, operation := limit.RecoveredID(v.limit.Name), limit.RecoveredOperation(v.limit.Name)
	missing, stood, until := used, int64(0), at
	owns := map[string]int64{}
	ids, err := v.pseudoIDs(operation)
	if err != nil {
		return 0, err
	}
	for _, one := range ids {
		old, err := l.entryAt(one)
		if err == nil && old != nil {
			err = l.removePseudo(old)
		}
		if err != nil {
			return 0, err
		}
		if old == nil || old.score <= cut {
			continue
		}
		stood, until = stood+v.of(old.units, old.calls), max(until, old.score)
		if one != id {
			owns[one] = v.of(old.units, old.calls)
		}
	}
	for lane := range v.w.lanes {
		if !v.sees(lane) {
			continue
		}
		var r row
		err := l.c.each("SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ?", []any{l.b, lane, cut, at},
			func() { missing -= v.of(r.units, r.calls) }, &r.score, &r.units, &r.calls)
		if err != nil {
			return 0, err
		}
	}
	if at > cut {
		open, err := v.open(at)
		if err != nil {
			return 0, err
		}
		missing -= open
	}
	if own > 0 {
		owns[ownID] = max(own, owns[ownID])
	}
	charged := int64(0)
	for _, amount := range owns {
		charged += amount
	}
	amount := max(missing, stood, charged)
	over := until <= v.w.cutAt(l.last)
	if until = max(until, l.earliest(l.last)); over || amount <= 0 || until <= cut {
		return 0, nil
	}
	owns[id] = amount - charged
	for one, part := range owns {
		if part <= 0 {
			continue
		}
		if err := v.record(one, operation, part, until); err != nil {
			return 0, err
		}
	}
	v.noteFound(operation, amount-stood)
	return amount, nil
}

// open sums what the reservations counted at an instant that finish later: all that they asked
// for.
func (v *counting) open(at int64) (sum int64, err error) {
	lanes, err := v.l.lanes()
	for _, lane := range lanes {
		if err != nil || !v.sees(lane-lane%classes) {
			continue
		}
		var asked int64
		err = v.l.c.each("SELECT coalesce(asked, units) FROM entry WHERE b = ? AND lane = ? AND score > ? AND start <= ?", []any{v.l.b, lane, at, at},
			func() { sum += v.of(asked, 1) }, &asked)
	}
	return sum, err
}

// refillBy adds what is left of a level seen earlier, at most until the meter is full. It
// returns how much it added.
func (m *meter) refillBy(full int64, seen limit.Level, now int64) int64 {
	left := m.refill.Drain(seen, now).Used
	add := min(left, max(full, left)-m.levelAt(now).Used)
	if add <= 0 {
		return 0
	}
	m.add(add, 0, now, now)
	return add
}

// forget begins a budget's ledger anew. wanted: what was acknowledged before does not count
// as lost. The old ledger is removed like idle ones.
func (s *Store) forget(ctx context.Context, name string, wanted bool) error {
	return s.write(ctx, func(c *conn) error {
		old, err := readLedger(c, name, nil)
		if err != nil {
			return err
		}
		if err := keepHistory(c, old.b); err != nil {
			return err
		}
		if err := c.exec("UPDATE budget SET name = NULL, idle_at = 0 WHERE name = ?", name); err != nil {
			return err
		}
		s.cache.Remove(name)
		s.mu.Lock()
		s.swept = 0
		s.mu.Unlock()
		if !wanted {
			return nil
		}
		l, err := s.ledger(c, name)
		if err != nil {
			return err
		}
		clock, anchor, err := s.clocks.read(old.anchor)
		if err != nil {
			return err
		}
		now := max(clock, old.last)
		if err := l.create(now); err != nil {
			return err
		}
		if old.id != "" {
			l.id, l.changes, l.hosts, l.tables = old.id, old.changes, old.hosts, old.tables
		}
		l.gone, l.newest, l.resetAt = now, now, now
		l.keep(clock, now, anchor)
		l.postpone()
		return l.write()
	})
}
