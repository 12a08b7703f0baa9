package memstore

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
)

// Spent implements driver.Store.
func (s *Store) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.enter(ctx, q.Budget, q.Now)
	if err != nil {
		return driver.Spent{}, err
	}
	now := when.now
	view := driver.Spent{Now: when.clock}
	forgotten := max(l.gone, l.horizon(now))
	if l.born > 0 && l.born <= forgotten {
		view.Since = forgotten
	}
	sums := map[string]*driver.SpentRow{}
	for _, e := range l.entries {
		if e.state == released || q.Run != "" && e.item.Labels.Run != q.Run || e.score <= forgotten || q.Span > 0 && e.score <= now-q.Span {
			continue
		}
		name := e.group(q.By)
		if sums[name] == nil {
			sums[name] = &driver.SpentRow{Name: name}
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

// group is the name of an entry's group.
func (e *entry) group(by driver.GroupBy) string {
	switch by {
	case driver.ByJob:
		return e.item.Labels.Job
	case driver.ByRegion:
		return e.item.Labels.Region
	case driver.ByRun:
		return e.item.Labels.Run
	}
	return e.item.Operation
}
