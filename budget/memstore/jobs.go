package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// job is what the store keeps for a job.
type job struct {
	version int64
	text    []byte
	values  map[string][]byte
	records []driver.JobRecord // oldest first
}

// Job implements driver.JobStore.
func (s *Store) Job(ctx context.Context, name string) (driver.JobDocument, error) {
	found, err := s.Jobs(ctx, []string{name})
	if err != nil {
		return driver.JobDocument{}, err
	}
	return found[0], nil
}

// Jobs implements driver.JobStore.
func (s *Store) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found := make([]driver.JobDocument, len(names))
	for i, name := range names {
		now := s.clock()
		found[i] = driver.JobDocument{Now: now, Wall: now}
		if j := s.jobs[name]; j != nil {
			found[i].Version, found[i].Text = j.version, bytes.Clone(j.text)
		}
	}
	return found, nil
}

// SwapJob implements driver.JobStore.
func (s *Store) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	j := s.jobs[swap.Job]
	if j == nil {
		j = &job{values: map[string][]byte{}}
	}
	if j.version != swap.Version && (!swap.Remove || j.version != 0) {
		return false, nil
	}
	if swap.Remove {
		delete(s.jobs, swap.Job)
		return true, nil
	}
	s.jobs[swap.Job] = j
	if swap.Text != nil {
		j.version, j.text = j.version+1, bytes.Clone(swap.Text)
	}
	for key, value := range swap.Values {
		if value == nil {
			delete(j.values, key)
			continue
		}
		j.values[key] = bytes.Clone(value)
	}
	if len(swap.Records) > 0 {
		j.record(swap)
	}
	return true, nil
}

// record adds to the history and forgets what is old.
func (j *job) record(swap driver.JobSwap) {
	for _, record := range swap.Records {
		record.Text = bytes.Clone(record.Text)
		j.records = slices.DeleteFunc(j.records, func(old driver.JobRecord) bool { return old.ID == record.ID })
		j.records = append(j.records, record)
	}
	slices.SortFunc(j.records, func(a, b driver.JobRecord) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
	})
	j.records = slices.DeleteFunc(j.records, func(r driver.JobRecord) bool { return r.At < swap.Forget })
	if swap.Most > 0 && len(j.records) > swap.Most {
		j.records = slices.Delete(j.records, 0, len(j.records)-swap.Most)
	}
}

// JobValue implements driver.JobStore.
func (s *Store) JobValue(ctx context.Context, name, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if j := s.jobs[name]; j != nil {
		return bytes.Clone(j.values[key]), nil
	}
	return nil, nil
}

// JobHistory implements driver.JobStore.
func (s *Store) JobHistory(ctx context.Context, query driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	j := s.jobs[query.Job]
	if j == nil {
		return nil, nil
	}
	var found []driver.JobRecord
	for _, record := range slices.Backward(j.records) {
		if record.At >= query.Since && (query.Before == 0 || record.At < query.Before) && len(found) < query.Most {
			record.Text = bytes.Clone(record.Text)
			found = append(found, record)
		}
	}
	return found, nil
}
