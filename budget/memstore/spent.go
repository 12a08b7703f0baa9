package memstore

import (
	"context"

	"github.com/quotactl/quotactl/budget"
)

// Spent implements budget.Store.
func (s *Store) Spent(ctx context.Context, q budget.SpentQuery) (budget.SpentView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.enter(ctx, q.Budget, q.Now)
	if err != nil {
		return budget.SpentView{}, err
	}
	now := when.now
	view := budget.SpentView{Now: when.clock}
	forgotten := max(l.gone, l.horizon(now))
	if l.born > 0 && l.born <= forgotten {
		view.Since = forgotten
	}
	sums := map[string]*budget.SpentRow{}
	for _, e := range l.entries {
		if e.state == released || e.score <= forgotten || q.Span > 0 && e.score <= now-q.Span {
			continue
		}
		name := e.group(q.By)
		if sums[name] == nil {
			sums[name] = &budget.SpentRow{Name: name}
		}
		row := sums[name]
		row.Units += e.units
		row.Calls += e.calls
		if e.seen {
			row.Observed += e.calls
		}
		if e.state == open && e.score > now {
			row.Open++
		}
	}
	for _, row := range sums {
		view.Rows = append(view.Rows, *row)
	}
	return view, nil
}

// group is the name an entry is summed under.
func (e *entry) group(by budget.GroupBy) string {
	switch by {
	case budget.ByJob:
		return e.item.Labels.Job
	case budget.ByRegion:
		return e.item.Labels.Region
	case budget.ByRun:
		return e.item.Labels.Run
	}
	return e.item.Operation
}
