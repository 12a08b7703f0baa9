package memstore

import (
	"context"
	"math/big"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

func (s *Store) report(ctx context.Context, r driver.Report) (driver.Drift, error) {
	l, when, err := s.bring(ctx, r.Budget, r.Now, r.Limits)
	if err != nil {
		return driver.Drift{}, err
	}
	now := when.now
	answer := driver.Drift{Now: when.clock}
	at := r.At
	if at == 0 {
		at = now
	}
	reset := r.Reset
	if reset == 0 && r.After > 0 {
		reset = when.later + r.After
	}
	for _, lim := range r.Limits {
		switch {
		case lim.Name != r.Limit || lim.Window.Kind == limit.Concurrent:
		case lim.Window.Kind == limit.Bucket && reset != 0 && reset <= now:
		case lim.Window.Kind == limit.Bucket:
			answer.Added = l.meters[lim.Meter()].raise(r.Used, min(at, now), now)
			answer.Total = answer.Added
			if answer.Added > 0 {
				l.changes++
				l.noteFound(lim, limit.DriftOperation(lim.Name), answer.Added)
			}
		default:
			answer.Added = l.drift(lim, r, at, reset, now)
			for _, e := range l.entries {
				if e.item.ID == limit.DriftID(lim.Name) && e.amount(lim) > 0 && e.score > max(lim.Window.Cut(now), l.floor(lim)) {
					answer.Total, answer.Until = e.amount(lim), lim.Window.Returns(e.score)
				}
			}
		}
	}
	return answer, nil
}

// drift records the reported use that the ledger does not know, and returns how much that
// is.
func (l *ledger) drift(lim limit.Limit, r driver.Report, at, reset, now int64) int64 {
	cut := max(lim.Window.Cut(now), l.floor(lim))
	from := lim.Window.Cut(now) + 1
	if lim.Window.Kind == limit.CalendarKind {
		from, _ = lim.Window.Span(now)
	}
	missing := r.Used - max(l.used(lim, now), r.Seen)
	if at < from || reset != 0 && reset <= now || missing <= 0 {
		return 0
	}
	score := now
	switch {
	case lim.Window.Kind == limit.CalendarKind:
		score = lim.Window.Cut(now) + 1
	case reset != 0:
		score = min(now, reset-lim.Window.Length)
	}
	score = max(score, l.gone+1, l.horizon(now)+1)
	if score <= cut {
		return 0
	}
	amount, kept := missing, l.entries[:0:0]
	for _, e := range l.entries {
		if e.item.ID != limit.DriftID(lim.Name) {
			kept = append(kept, e)
			continue
		}
		if e.score > cut && e.amount(lim) > 0 {
			amount, score = amount+e.amount(lim), max(score, e.score)
		}
	}
	l.entries = kept
	l.record(lim, limit.DriftID(lim.Name), limit.DriftOperation(lim.Name), amount, score)
	l.noteFound(lim, limit.DriftOperation(lim.Name), missing)
	return missing
}

// raise fills the meter to a level seen earlier, less what has drained since.
func (m *meter) raise(used, at, now int64) int64 {
	add := ceil(new(big.Rat).Sub(rat(used), m.drained(now-at))) - m.used(now)
	if add <= 0 {
		return 0
	}
	m.add(rat(add), now)
	return add
}
