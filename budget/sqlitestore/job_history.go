package sqlitestore

import (
	"context"
	"math"

	"github.com/quotactl/quotactl/budget/driver"
)

// JobHistory implements driver.JobStore.
func (s *Store) JobHistory(ctx context.Context, query driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	before := query.Before
	if before == 0 {
		before = math.MaxInt64
	}
	var found []driver.JobRecord
	err := s.read(bounded, func(c *conn) error {
		var r driver.JobRecord
		return c.each("SELECT at, id, text FROM job_record WHERE job = ? AND at >= ? AND at < ? ORDER BY at DESC, id DESC LIMIT ?",
			[]any{query.Job, query.Since, before, query.Most}, func() { found = append(found, r) }, &r.At, &r.ID, &r.Text)
	})
	if err != nil {
		return nil, s.explain(ctx, "read the history of job "+query.Job, err)
	}
	return found, nil
}

// pruneRecords removes records that a swap forgets, the oldest first, up to the most that a
// transaction may remove. more: there may be others left.
func (s *Store) pruneRecords(c *conn, swap driver.JobSwap) (more bool, err error) {
	at, id := swap.Forget, "" // of the oldest record to keep
	if swap.Most > 0 {
		var oldest int64
		var named string
		full, err := c.first("SELECT at, id FROM job_record WHERE job = ? ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?",
			[]any{swap.Job, swap.Most - 1}, &oldest, &named)
		if err != nil {
			return false, err
		}
		if full && oldest >= at {
			at, id = oldest, named
		}
	}
	var one, removed int
	err = c.each(`DELETE FROM job_record WHERE rowid IN (
		SELECT rowid FROM job_record WHERE job = ? AND (at, id) < (?, ?) ORDER BY at, id LIMIT ?) RETURNING 1`,
		[]any{swap.Job, at, id, s.pruning}, func() { removed++ }, &one)
	return removed == s.pruning, err
}
