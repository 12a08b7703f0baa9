package sqlitestore

import (
	"cmp"
	"fmt"

	"github.com/quotactl/quotactl/budget"
)

// checkNewest holds a ledger against the newest charge that it tells of: one that is
// still held lies in the file. All entries are counted by Diagnose alone.
func (l *ledger) checkNewest() error {
	if l.newestID == "" || l.newest <= l.last-budget.MinHeld {
		return nil
	}
	e, err := l.entryAt(l.newestID)
	if err != nil || e != nil {
		return err
	}
	return fmt.Errorf("budget %s: %w: its newest charge, %s, is not there; %s", l.name, budget.ErrDamaged, l.newestID, adviceDamaged)
}

// countEntries holds the entries of every budget against their number as kept. It
// takes time in proportion to them.
func countEntries(c *conn) error {
	var name string
	var kept, there int64
	var damaged error
	err := c.each("SELECT name, n, (SELECT count(*) FROM entry WHERE entry.b = budget.b) FROM budget WHERE name IS NOT NULL", nil, func() {
		if kept != there && damaged == nil {
			damaged = fmt.Errorf("budget %s: %w: it holds %d entries where %d were recorded; %s", name, budget.ErrDamaged, there, kept, adviceDamaged)
		}
	}, &name, &kept, &there)
	return cmp.Or(err, damaged)
}
