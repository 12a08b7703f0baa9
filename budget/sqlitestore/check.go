package sqlitestore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
)

// checkNewest fails with ErrDamaged if the file lacks the newest charge that the
// ledger names and must still hold. It takes the same time for any ledger; only
// Diagnose counts all entries.
func (l *ledger) checkNewest() error {
	if l.newestID == "" || l.newest <= l.last-driver.MinHeld {
		return nil
	}
	e, err := l.entryAt(l.newestID)
	if err != nil || e != nil {
		return err
	}
	return fmt.Errorf("budget %s: %w: its newest charge, %s, is missing; %s", l.name, driver.ErrDamaged, l.newestID, adviceDamaged)
}

// countEntries fails with ErrDamaged if a budget has another number of entries than
// it recorded. It takes time in proportion to them.
func countEntries(ctx context.Context, c *conn) error {
	var name string
	var kept, there int64
	found := false
	err := c.within(ctx, func() (err error) {
		found, err = c.first(`SELECT name, n, found FROM
		(SELECT name, n, (SELECT count(*) FROM entry WHERE entry.b = budget.b) AS found FROM budget WHERE name IS NOT NULL)
		WHERE n <> found LIMIT 1`, nil, &name, &kept, &there)
		return err
	})
	if err == nil && !found {
		return nil
	}
	return cmp.Or(err, fmt.Errorf("budget %s: %w: it holds %d entries where %d were recorded; %s", name, driver.ErrDamaged, there, kept, adviceDamaged))
}

// checkSums fails with ErrDamaged if a sum is not that of its entries. It takes time in
// proportion to them.
func checkSums(ctx context.Context, c *conn) error {
	var name string
	var kept, there int64
	found := false
	err := c.within(ctx, func() (err error) {
		found, err = c.first(`SELECT name, units, found FROM
			(SELECT name, s.units, s.calls,
				coalesce(sum(e.units), 0) AS found, coalesce(sum(e.calls), 0) AS found_calls
			FROM entry_sum AS s JOIN budget ON budget.b = s.b AND name IS NOT NULL
			LEFT JOIN entry AS e ON e.b = s.b AND e.lane = s.lane AND e.score <= s.upto
				AND e.score > coalesce((SELECT max(upto) FROM entry_sum AS t WHERE t.b = s.b AND t.lane = s.lane AND t.upto < s.upto), -1 << 62)
			GROUP BY s.b, s.lane, s.upto)
			WHERE units <> found OR calls <> found_calls LIMIT 1`, nil, &name, &kept, &there)
		return err
	})
	if err == nil && !found {
		return nil
	}
	return cmp.Or(err, fmt.Errorf("budget %s: %w: a sum of its entries is %d units, and they are %d; %s", name, driver.ErrDamaged, kept, there, adviceDamaged))
}
