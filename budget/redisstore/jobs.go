package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quotactl/quotactl/budget/driver"
)

// jobScope is a job's name where budgets have theirs: in keys and in Store.clocks.
func jobScope(job string) string { return "job:" + job }

// jobKeys are some of the keys of a job.
func (s *Store) jobKeys(job string, parts ...string) []string {
	keys := make([]string, len(parts))
	for i, part := range parts {
		keys[i] = s.key(jobScope(job), part)
	}
	return keys
}

// Job implements driver.JobStore.
func (s *Store) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	var found [1]driver.JobDocument
	err := s.readJobs(ctx, []string{job}, found[:])
	return found[0], err
}

const (
	jobsOfARun = 500 // documents that one script run reads
	jobReaders = 16  // script runs that read documents at the same time
)

// Jobs implements driver.JobStore. Each script run has the store's timeout; where
// jobs lie on several servers, one reads one document.
func (s *Store) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	found, size := make([]driver.JobDocument, len(names)), jobsOfARun
	if s.Sharded() {
		size = 1
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		reading sync.WaitGroup
		next    atomic.Int64
		failed  sync.Once
		first   error
	)
	for range min(jobReaders, (len(names)+size-1)/size) {
		reading.Go(func() {
			for {
				to := int(next.Add(int64(size)))
				from := to - size
				if from >= len(names) {
					return
				}
				to = min(to, len(names))
				if err := s.readJobs(ctx, names[from:to], found[from:to]); err != nil {
					failed.Do(func() { first = err })
					stop()
					return
				}
			}
		})
	}
	reading.Wait()
	if first != nil {
		return nil, first
	}
	return found, nil
}

// readJobs reads documents in one script run.
func (s *Store) readJobs(ctx context.Context, names []string, found []driver.JobDocument) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	doing := "read job " + names[0]
	if len(names) > 1 {
		doing = fmt.Sprintf("read %d jobs from %s on", len(names), names[0])
	}
	var keys []string
	for _, name := range names {
		keys = append(keys, s.jobKeys(name, "s")...)
	}
	reply, err := s.run(ctx, s.scripts.JobRead, keys).Slice()
	if err != nil {
		return s.fault(doing, err)
	}
	if !isDocuments(reply, len(names)) {
		return s.strange(doing, reply)
	}
	now := numberAt(reply, 0)
	for i, name := range names {
		found[i] = driver.JobDocument{Version: numberAt(reply, 1+2*i), Now: now, Wall: now}
		if text, ok := reply[2+2*i].(string); ok {
			found[i].Text = []byte(text)
		}
		s.learnAt(jobScope(name), now)
	}
	return nil
}

// JobValue implements driver.JobStore.
func (s *Store) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	doing := fmt.Sprintf("read %s of job %s", key, job)
	reply, err := s.run(ctx, s.scripts.JobValue, s.jobKeys(job, "k"), key).Slice()
	switch {
	case err != nil:
		return nil, s.fault(doing, err)
	case len(reply) > 1 || !listOf(isText)(any(reply)):
		return nil, s.strange(doing, reply)
	case len(reply) == 0:
		return nil, nil
	}
	return []byte(text(reply, 0)), nil
}

// recordsOfARun is how many records one script run reads.
const recordsOfARun = 1000

// JobHistory implements driver.JobStore: one page per script run, so that changes
// meanwhile may be in it or not.
func (s *Store) JobHistory(ctx context.Context, q driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	doing, top := "read the history of job "+q.Job, "+inf"
	if q.Before != 0 {
		top = fmt.Sprintf("(%d", q.Before)
	}
	var (
		found []driver.JobRecord
		last  int64 // the instant of the last record read
		over  int   // how many records of that instant were read
	)
	for len(found) < q.Most {
		most := min(q.Most-len(found), recordsOfARun)
		reply, err := s.run(ctx, s.scripts.JobHistory, s.jobKeys(q.Job, "h", "r"), arguments(jobHistoryArgs{fmt.Sprint(q.Since), top, over, most})...).Slice()
		if err != nil {
			return nil, s.fault(doing, err)
		}
		if !isRecords(reply, most) {
			return nil, s.strange(doing, reply)
		}
		for _, row := range lists([]any{reply}, 0) {
			if row[2] == nil {
				return nil, s.damagedJob(q.Job)
			}
			record := driver.JobRecord{At: number(row[0]), ID: text(row, 1), Text: []byte(text(row, 2))}
			if record.At != last {
				last, over = record.At, 0
			}
			over++
			if len(found) == 0 || isOlder(record, found[len(found)-1]) {
				found = append(found, record)
			}
		}
		if len(reply) < most {
			break
		}
		top = fmt.Sprint(last)
	}
	return found, nil
}

// isOlder reports whether record a comes after b in a history, which is newest first. It is
// false for a record that a page repeats because others were added above it meanwhile.
func isOlder(a, b driver.JobRecord) bool { return a.At < b.At || a.At == b.At && a.ID < b.ID }

// damagedJob reports a history whose parts disagree.
func (s *Store) damagedJob(job string) error {
	keys := s.jobKeys(job, "h", "r")
	return fmt.Errorf("history of job %s in Redis: %w: it does not hold a text for each record; keys were evicted or deleted: set maxmemory-policy noeviction, and restore the keys %s, or delete both to begin the history anew",
		job, driver.ErrDamaged, strings.Join(keys, " and "))
}
