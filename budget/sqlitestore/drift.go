package sqlitestore

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

func (s *Store) report(ctx context.Context, r driver.Report) (answer driver.Drift, err error) {
	d := &decider{s: s, batch: driver.Batch{Budget: r.Budget, Now: r.Now, Limits: r.Limits}}
	err = d.repeat(ctx, func(c *conn) error { return d.report(c, r, &answer) })
	return answer, err
}

// report continues with a report until it is done or the steps run out.
func (d *decider) report(c *conn, r driver.Report, answer *driver.Drift) (err error) {
	d.steps, d.done = d.s.steps, false
	if answer.Now, err = d.open(c); err != nil {
		return err
	}
	if d.done, err = d.advance(d.l.last); err != nil {
		return err
	}
	if r.At == 0 {
		r.At = d.l.last
	}
	if r.Reset == 0 && r.After > 0 {
		r.Reset = d.when.later + r.After
	}
	for _, v := range d.limits {
		if !d.done || v.limit.Name != r.Limit {
			continue
		}
		if err := v.report(r, answer); err != nil {
			return err
		}
	}
	return d.close()
}

// report takes in the report on one limit, whose totals are up to date.
func (v *counting) report(r driver.Report, answer *driver.Drift) (err error) {
	l := v.l
	switch v.limit.Window.Kind {
	case limit.Concurrent:
		return nil
	case limit.Bucket:
		if r.Reset != 0 && r.Reset <= l.last {
			return nil
		}
		answer.Added = v.m.raise(limit.Level{Used: r.Used, At: min(r.At, l.last)}, l.last)
		answer.Total = answer.Added
		if answer.Added > 0 {
			l.changes++
			v.noteFound(limit.DriftOperation(v.limit.Name), answer.Added)
		}
		return nil
	}
	old, err := l.entryAt(limit.DriftID(v.limit.Name))
	if err != nil {
		return err
	}
	if old != nil && old.score > max(v.w.cutAt(l.last), v.w.floor) {
		answer.Total = v.of(old.units, old.calls)
	}
	if answer.Total > 0 {
		answer.Until = v.limit.Window.Returns(old.score)
	}
	missing, score := v.drift(r)
	if missing == 0 {
		return nil
	}
	if old != nil {
		if err := l.removePseudo(old); err != nil {
			return err
		}
	}
	if answer.Total > 0 {
		score = max(score, old.score)
	}
	v.noteFound(limit.DriftOperation(v.limit.Name), missing)
	answer.Added, answer.Total, answer.Until = missing, answer.Total+missing, v.limit.Window.Returns(score)
	return v.record(limit.DriftID(v.limit.Name), limit.DriftOperation(v.limit.Name), answer.Total, score)
}

// drift returns how much of the reported use the ledger lacks, and the score of the charge
// that records it. It returns 0, 0 if there is nothing to record.
func (v *counting) drift(r driver.Report) (missing, score int64) {
	l, window := v.l, v.limit.Window
	now := l.last
	cut := v.w.cutAt(now)
	from := cut + 1
	score = now
	switch {
	case window.Kind == limit.CalendarKind:
		from, _ = window.Span(now)
		score = cut + 1
	case r.Reset != 0:
		score = min(now, r.Reset-window.Length)
	}
	score = max(score, l.gone+1)
	missing = r.Used - max(v.used(), r.Seen)
	if r.At < from || r.Reset != 0 && r.Reset <= now || missing <= 0 || score <= max(cut, v.w.floor) {
		return 0, 0
	}
	return missing, score
}

// raise fills the meter to a level seen earlier, minus what has drained since. It returns
// by how much.
func (m *meter) raise(seen limit.Level, now int64) int64 {
	add := m.refill.Drain(seen, now).Used - m.levelAt(now).Used
	if add <= 0 {
		return 0
	}
	m.add(add, 0, now, now)
	return add
}
