package sqlitestore

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
)

// Spent implements driver.Store. It reads one state of the ledger, however long that
// takes. It writes nothing, and neither waits for writers nor delays them.
func (s *Store) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	var view driver.Spent
	err := s.readAlone(ctx, func(c *conn) (err error) {
		view, err = s.spent(ctx, c, q)
		return err
	})
	if err != nil {
		return driver.Spent{}, s.explain(ctx, "sum the ledger of "+q.Budget, err)
	}
	return view, nil
}

// spentChunk is how many entries Spent reads between two checks of the context.
const spentChunk = 20_000

// spent is Spent within a transaction, lane by lane.
func (s *Store) spent(ctx context.Context, c *conn, q driver.SpentQuery) (view driver.Spent, err error) {
	l, when, err := s.entered(c, q.Budget, q.Now)
	if err != nil {
		return view, err
	}
	now := when.now
	view.Now = when.clock
	above := max(l.gone, l.horizon(now))
	if l.born > 0 && l.born <= above {
		view.Since = above
	}
	if q.Span > 0 {
		above = max(above, now-q.Span)
	}
	lanes, err := l.lanes()
	if err != nil {
		return view, err
	}
	run := int64(0) // 0: all
	if q.Run != "" {
		known, err := c.first("SELECT no FROM label WHERE b = ? AND name = ?", []any{l.b, q.Run}, &run)
		if err != nil || !known {
			return view, err
		}
	}
	sums := map[int64]*driver.SpentRow{} // by operation or label
	for _, lane := range lanes {
		if lane%classes == classReleased {
			continue
		}
		if err := l.sum(ctx, lane, above, now, q.By, run, sums); err != nil {
			return view, err
		}
	}
	names := map[int64]string{}
	if q.By == driver.ByOperation {
		for no := range l.opNames {
			names[no] = l.base(no)
		}
	} else {
		var no int64
		var name string
		err = c.each("SELECT no, name FROM label WHERE b = ?", []any{l.b}, func() { names[no] = name }, &no, &name)
	}
	byName := map[string]int{} // a label that was pruned has an empty name
	for no, sum := range sums {
		sum.Name = names[no]
		i, known := byName[sum.Name]
		if !known {
			byName[sum.Name] = len(view.Rows)
			view.Rows = append(view.Rows, *sum)
			continue
		}
		view.Rows[i].Units += sum.Units
		view.Rows[i].Calls += sum.Calls
		view.Rows[i].Open += sum.Open
		view.Rows[i].Observed += sum.Observed
	}
	return view, err
}

// sum adds the entries of a lane with scores above above to the sums, those of one run if
// run is not 0.
func (l *ledger) sum(ctx context.Context, lane, above, now int64, by driver.GroupBy, run int64, sums map[int64]*driver.SpentRow) error {
	column := map[driver.GroupBy]string{driver.ByOperation: "lane / 4", driver.ByJob: "job", driver.ByRegion: "region", driver.ByRun: "run"}[by]
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		upto := toTheEnd
		more, err := l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? ORDER BY score LIMIT 1 OFFSET ?",
			[]any{l.b, lane, above, spentChunk}, &upto)
		if err != nil {
			return err
		}
		var group int64
		var some driver.SpentRow
		err = l.c.each("SELECT "+column+", sum(units), sum(calls), sum(state & 7 = 1 AND score > ?), sum(calls * (state >> 3)) FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ? AND ? IN (0, run) GROUP BY 1",
			[]any{now, l.b, lane, above, upto, run}, func() {
				row := sums[group]
				if row == nil {
					row = &driver.SpentRow{}
					sums[group] = row
				}
				row.Units += some.Units
				row.Calls += some.Calls
				row.Open += some.Open
				row.Observed += some.Observed
			}, &group, &some.Units, &some.Calls, &some.Open, &some.Observed)
		if err != nil || !more {
			return err
		}
		above = upto
	}
}
