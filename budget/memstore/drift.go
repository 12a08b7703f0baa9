package memstore

import (
	"context"
	"math/big"

	"github.com/quotactl/quotactl/budget"
)

// Report implements budget.Store.
func (s *Store) Report(ctx context.Context, r budget.Report) (budget.Drifted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.bring(ctx, r.Budget, r.Now, r.Limits)
	if err != nil {
		return budget.Drifted{}, err
	}
	now := when.now
	answer := budget.Drifted{Now: when.clock}
	at := r.At
	if at == 0 {
		at = now
	}
	reset := r.Reset
	if reset == 0 && r.After > 0 {
		reset = when.later + r.After
	}
	for _, limit := range r.Limits {
		switch {
		case limit.Name != r.Limit || limit.Window.Kind == budget.Concurrent:
		case limit.Window.Kind == budget.Bucket:
			answer.Added = l.meters[limit.Meter()].raise(r.Used, min(at, now), now)
			answer.Total = answer.Added
			if answer.Added > 0 {
				l.changes++
			}
		default:
			answer.Added = l.drift(limit, r, at, reset, now)
			for _, e := range l.entries {
				if e.item.ID == budget.DriftID(limit.Name) && e.amount(limit) > 0 && e.score > max(limit.Window.Cut(now), l.floor(limit)) {
					answer.Total, answer.Until = e.amount(limit), limit.Window.Returns(e.score)
				}
			}
		}
	}
	return answer, nil
}

// drift records what a report says is used and is not known, and is how much.
func (l *ledger) drift(limit budget.Limit, r budget.Report, at, reset, now int64) int64 {
	cut := max(limit.Window.Cut(now), l.floor(limit))
	from := limit.Window.Cut(now) + 1
	if limit.Window.Kind == budget.CalendarKind {
		from, _ = limit.Window.Span(now)
	}
	missing := r.Used - max(l.used(limit, now), r.Seen)
	if at < from || reset != 0 && reset <= now || missing <= 0 {
		return 0
	}
	score := now
	switch {
	case limit.Window.Kind == budget.CalendarKind:
		score = limit.Window.Cut(now) + 1
	case reset != 0:
		score = min(now, reset-limit.Window.Length)
	}
	score = max(score, l.gone+1, l.horizon(now)+1)
	if score <= cut {
		return 0
	}
	amount, kept := missing, l.entries[:0:0]
	for _, e := range l.entries {
		if e.item.ID != budget.DriftID(limit.Name) {
			kept = append(kept, e)
			continue
		}
		if e.score > cut && e.amount(limit) > 0 {
			amount, score = amount+e.amount(limit), max(score, e.score)
		}
	}
	l.entries = kept
	l.record(limit, budget.DriftID(limit.Name), budget.DriftOperation(limit.Name), amount, score)
	return missing
}

// raise fills the meter up to a level seen earlier, less what has drained since.
func (m *meter) raise(used, at, now int64) int64 {
	add := ceil(new(big.Rat).Sub(rat(used), m.drained(now-at))) - m.used(now)
	if add <= 0 {
		return 0
	}
	m.add(rat(add), now)
	return add
}
