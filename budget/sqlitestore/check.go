package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// checkEvery is how often a process counts a budget's entries.
const checkEvery = time.Hour

// check holds the entries of a budget against their number as kept, when this
// process first touches the budget and hourly. It counts on the reading
// connection, so that no writer waits for it.
func (s *Store) check(ctx context.Context, name string) error {
	s.mu.Lock()
	fresh := time.Since(s.checks[name]) < checkEvery
	s.mu.Unlock()
	if fresh {
		return nil
	}
	err := s.read(ctx, func(c *conn) error { return checkCount(c, name) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.checks) >= maxCached {
		clear(s.checks)
	}
	s.checks[name] = time.Now()
	return nil
}

// checkCount counts a budget's entries.
func checkCount(c *conn, name string) error {
	var kept, there int64
	found, err := c.first("SELECT n, (SELECT count(*) FROM entry WHERE entry.b = budget.b) FROM budget WHERE name = ?", []any{name}, &kept, &there)
	if err != nil || !found || kept == there {
		return err
	}
	return fmt.Errorf("budget %s: %w: it holds %d entries where %d were recorded; %s", name, budget.ErrDamaged, there, kept, adviceDamaged)
}
