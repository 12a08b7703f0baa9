package sqlitestore

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// sweepEvery is the interval at which a process looks for idle budgets, in µs.
const sweepEvery int64 = 3_600_000_000

// sweepBudgets bounds the idle budgets that one transaction handles.
const sweepBudgets = 16

// sweepTime bounds the delay of a call that sweeps.
const sweepTime = 100 * time.Millisecond

// sweep deletes idle budgets, if any, in one transaction of bounded size, at most once in
// sweepEvery unless some are left. It skips the budget just decided on, except. now is that
// budget's clock, caller the caller's.
func (s *Store) sweep(ctx context.Context, except string, now, caller int64) {
	s.mu.Lock()
	due := s.swept == 0 || now-s.swept >= sweepEvery
	s.mu.Unlock()
	if !due || len(s.looks) > 0 { // the reader is in use: the next call sweeps
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	until := min(now, caller+driver.ClockTolerance)
	found, left := false, false
	err := s.read(ctx, func(c *conn) (err error) { // a read does not wait for writers
		var one int64
		found, err = c.first("SELECT 1 FROM budget WHERE idle_at < ? AND name IS NOT ? LIMIT 1", []any{until, except}, &one)
		return err
	})
	if err == nil && found {
		err = s.write(ctx, func(c *conn) (err error) {
			left, err = s.sweepSome(c, except, until)
			return err
		})
	}
	// Errors do not matter: the caller has its answer, the next call sweeps again, and a
	// damaged file fails the next decision.
	if err == nil && !left {
		s.mu.Lock()
		s.swept = now
		s.mu.Unlock()
	}
}

// sweepSome deletes budgets that are idle at now. left: there are more.
func (s *Store) sweepSome(c *conn, except string, now int64) (left bool, err error) {
	type idle struct {
		b      int64
		anchor anchor
		at     int64
		name   string
	}
	var one idle
	var list []idle
	err = c.each("SELECT b, coalesce(name, ''), boot_id, boot_offset, idle_at FROM budget WHERE idle_at < ? AND name IS NOT ? ORDER BY idle_at LIMIT ?",
		[]any{now, except, sweepBudgets}, func() { list = append(list, one) }, &one.b, &one.name, &one.anchor.boot, &one.anchor.offset, &one.at)
	if err != nil {
		return false, err
	}
	limit := int64(s.steps)
	for _, i := range list {
		clock, _, err := s.clocks.read(i.anchor)
		if err != nil {
			return false, err
		}
		if i.name != "" && clock <= i.at {
			continue // it is not idle yet by its own clock
		}
		s.cache.Remove(i.name)
		done, err := deleteBudget(c, i.b, &limit)
		if err != nil || !done {
			return true, err
		}
	}
	return len(list) == sweepBudgets && limit < int64(s.steps), nil
}

// deleteBudget deletes up to limit rows of a budget, the budget's own row last. It removes
// the name first, so that a new charge to that name begins a new ledger.
func deleteBudget(c *conn, b int64, limit *int64) (done bool, err error) {
	if err := keepHistory(c, b); err != nil {
		return false, err
	}
	if err := c.exec("UPDATE budget SET name = NULL WHERE b = ?", b); err != nil {
		return false, err
	}
	for _, query := range []string{
		"DELETE FROM entry WHERE b = ? AND (lane, score, no) IN (SELECT lane, score, no FROM entry WHERE b = ? LIMIT ?) RETURNING 1",
		"DELETE FROM entry_id WHERE b = ? AND (hash, lane, score, no) IN (SELECT hash, lane, score, no FROM entry_id WHERE b = ? LIMIT ?) RETURNING 1",
		"DELETE FROM entry_sum WHERE b = ? AND (lane, upto) IN (SELECT lane, upto FROM entry_sum WHERE b = ? LIMIT ?) RETURNING 1",
		"DELETE FROM label WHERE b = ? AND name IN (SELECT name FROM label WHERE b = ? LIMIT ?) RETURNING 1",
	} {
		var one int64
		if err := c.each(query, []any{b, b, *limit}, func() { *limit-- }, &one); err != nil {
			return false, err
		}
		if *limit <= 0 {
			return false, nil
		}
	}
	// These tables have few rows: one for each window, limit or operation.
	for _, query := range []string{
		"DELETE FROM total WHERE b = ?", "DELETE FROM meter WHERE b = ?", "DELETE FROM win WHERE b = ?", "DELETE FROM lock WHERE b = ?",
		"DELETE FROM operation WHERE b = ?", "DELETE FROM budget WHERE b = ?",
	} {
		if err := c.exec(query, b); err != nil {
			return false, err
		}
	}
	return true, nil
}
