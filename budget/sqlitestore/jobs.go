package sqlitestore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
)

// Job implements driver.JobStore.
func (s *Store) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	found, err := s.documents(ctx, "read job "+job, []string{job})
	if err != nil {
		return driver.JobDocument{}, err
	}
	return found[0], nil
}

// Jobs implements driver.JobStore. All are as of one instant.
func (s *Store) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	return s.documents(ctx, fmt.Sprintf("read %d jobs", len(names)), names)
}

// readJobs reads the documents of the jobs in a JSON array, each with its place there. One
// statement reads a thousand in a few milliseconds.
const readJobs = `SELECT asked.key, job.version, job.text FROM json_each(?) AS asked CROSS JOIN job ON job.name = asked.value`

func (s *Store) documents(ctx context.Context, what string, names []string) ([]driver.JobDocument, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	asked, err := json.Marshal(names)
	if err != nil {
		return nil, s.explain(ctx, what, err)
	}
	found := make([]driver.JobDocument, len(names))
	err = s.read(bounded, func(c *conn) error {
		now, _, err := s.jobClock(c)
		if err != nil {
			return err
		}
		for i := range found {
			found[i] = driver.JobDocument{Now: now, Wall: s.clocks.wallAt(now)}
		}
		var i, version int64
		var text []byte
		return c.each(readJobs, []any{string(asked)}, func() { found[i].Version, found[i].Text = version, there(text) }, &i, &version, &text)
	})
	if err != nil {
		return nil, s.explain(ctx, what, err)
	}
	return found, nil
}

// there turns a text that exists into a non-nil one: SQLite's driver reads an empty text as
// nil.
func there(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}

// jobClock returns the clock of the jobs, and the anchor to keep with the next document.
// Like a budget's clock it follows the boot clock. After a reboot it never falls behind the
// newest document, whatever the wall clock shows: leases taken before the reboot end.
func (s *Store) jobClock(c *conn) (now int64, a anchor, err error) {
	var last int64
	if _, err = c.first("SELECT last, boot_id, boot_offset FROM job_clock WHERE one = 1", nil, &last, &a.boot, &a.offset); err != nil {
		return 0, a, err
	}
	now, a, err = s.clocks.read(a)
	if behind := last - now; err == nil && behind > 0 {
		now, a.offset = now+behind, a.offset+behind
	}
	return now, a, err
}

// SwapJob implements driver.JobStore. If more records are to be removed than one
// transaction does, further ones continue; what is left then goes with the next
// records.
func (s *Store) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	swapped, more := false, false
	err := s.write(bounded, func(c *conn) (err error) {
		if swapped, err = s.swap(c, swap); err != nil || !swapped || swap.Remove || len(swap.Records) == 0 {
			return err
		}
		more, err = s.pruneRecords(c, swap)
		return err
	})
	if err != nil {
		return false, s.explain(ctx, "change job "+swap.Job, err)
	}
	for more && s.pause(bounded) == nil {
		err := s.write(bounded, func(c *conn) (err error) {
			more, err = s.pruneRecords(c, swap)
			return err
		})
		if err != nil { // the swap is done, even if old records remain
			break
		}
	}
	return swapped, nil
}

// swap is SwapJob within a transaction, except for forgetting records.
func (s *Store) swap(c *conn, swap driver.JobSwap) (bool, error) {
	var version int64
	_, err := c.first("SELECT version FROM job WHERE name = ?", []any{swap.Job}, &version)
	switch {
	case err != nil:
		return false, err
	case swap.Remove && (version == 0 || version == swap.Version):
		return true, removeJob(c, swap.Job)
	case version != swap.Version:
		return false, nil
	}
	if swap.Text != nil {
		if err := s.putDocument(c, swap); err != nil {
			return false, err
		}
	}
	for key, value := range swap.Values {
		if err := putJobValue(c, swap.Job, key, value); err != nil {
			return false, err
		}
	}
	for _, r := range swap.Records {
		err := c.exec("INSERT OR REPLACE INTO job_record(job, at, id, text) VALUES (?, ?, ?, ?)", swap.Job, r.At, r.ID, there(r.Text))
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// removeJob deletes everything kept for a job.
func removeJob(c *conn, job string) error {
	for _, statement := range []string{"DELETE FROM job WHERE name = ?", "DELETE FROM job_value WHERE job = ?", "DELETE FROM job_record WHERE job = ?"} {
		if err := c.exec(statement, job); err != nil {
			return err
		}
	}
	return nil
}

// putDocument writes a job's next document, and the jobs' clock.
func (s *Store) putDocument(c *conn, swap driver.JobSwap) error {
	now, a, err := s.jobClock(c)
	if err == nil {
		err = c.exec("INSERT OR REPLACE INTO job_clock(one, last, boot_id, boot_offset) VALUES (1, ?, ?, ?)", now, a.boot, a.offset)
	}
	if err != nil {
		return err
	}
	return c.exec(`INSERT INTO job(name, version, text) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET version = excluded.version, text = excluded.text`, swap.Job, swap.Version+1, swap.Text)
}

// putJobValue writes a value, or removes it if value is nil.
func putJobValue(c *conn, job, key string, value []byte) error {
	if value == nil {
		return c.exec("DELETE FROM job_value WHERE job = ? AND key = ?", job, key)
	}
	return c.exec("INSERT OR REPLACE INTO job_value(job, key, value) VALUES (?, ?, ?)", job, key, value)
}

// JobValue implements driver.JobStore.
func (s *Store) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	var value []byte
	err := s.read(bounded, func(c *conn) error {
		found, err := c.first("SELECT value FROM job_value WHERE job = ? AND key = ?", []any{job, key}, &value)
		if found {
			value = there(value)
		}
		return err
	})
	if err != nil {
		return nil, s.explain(ctx, "read "+key+" of job "+job, err)
	}
	return value, nil
}
