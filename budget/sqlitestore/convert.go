package sqlitestore

import "context"

// convertEntries takes over the entries of a file of version 9 or older, from the table that
// the migration left as old_entry, within the migration's transaction.
func convertEntries(ctx context.Context, c *conn) error {
	err := c.within(ctx, func() error {
		old := converter{to: &ledger{c: c}}
		var broken error
		err := c.each(`SELECT e.b, last, e.id, lane, score, start, asked, e.units, calls, state, observed, job, region, run
			FROM old_entry AS e JOIN budget USING (b) ORDER BY e.b, lane, score`, nil, func() {
			if broken == nil {
				broken = old.take()
			}
			if broken == nil {
				broken = ctx.Err()
			}
		}, &old.b, &old.last, &old.e.id, &old.e.lane, &old.e.score, &old.e.start, &old.e.asked, &old.e.units, &old.e.calls, &old.e.state, &old.e.observed, &old.e.job, &old.e.region, &old.e.run)
		if broken != nil {
			return broken
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.script(ctx, `UPDATE budget SET summed = coalesce((SELECT max(upto) FROM entry_sum AS s WHERE s.b = budget.b), 0);
		DROP TABLE old_entry;`)
}

// converter writes old entries, which come in the order of their budgets, lanes and scores.
type converter struct {
	to      *ledger // of the entry before, as far as writing entries needs it
	b, last int64   // of the one that was read: its budget, and when that was last seen
	e       entry   // the one that was read
	before  entry   // the one before it
	sum     row     // of the entries since the last sum of the lane
	entries int     // and how many they are
}

func (o *converter) take() error {
	e := o.e
	same := o.to.b == o.b && o.before.lane == e.lane
	if !same || o.entries >= perSum && o.before.score != e.score {
		if err := o.sumUp(); err != nil {
			return err
		}
	}
	o.to.b = o.b
	if err := o.to.put(&e); err != nil {
		return err
	}
	o.before = e
	if e.lane%classes != classReleased && e.score <= o.last {
		o.entries++
		o.sum = row{e.score, o.sum.units + e.units, o.sum.calls + e.calls}
	}
	return nil
}

// sumUp writes the sum of the lane's last entries, if they are enough for one.
func (o *converter) sumUp() error {
	sum, entries := o.sum, o.entries
	o.sum, o.entries = row{}, 0
	if entries < perSum {
		return nil
	}
	return o.to.c.exec("INSERT INTO entry_sum(b, lane, upto, units, calls) VALUES (?, ?, ?, ?, ?)", o.to.b, o.before.lane, sum.score, sum.units, sum.calls)
}
