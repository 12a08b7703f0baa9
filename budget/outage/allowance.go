package outage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// localTimeout bounds a decision by the allowance, which is on this machine's disk.
const localTimeout = sqlitestore.DefaultTimeout

// allowance opens the ledger of what the host spends of its allowance, once.
func (s *Store) allowance(ctx context.Context) (*sqlitestore.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, driver.ErrClosed
	case s.local != nil:
		return s.local, nil
	}
	dir, err := makeDir(s.o.Dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "allowance.db")
	// An empty file is a ledger that was begun just now. Then no charge is written down yet.
	if info, err := os.Stat(path); err == nil && info.Size() == 0 && s.inFolder("journal") != "" {
		return nil, fmt.Errorf("%s is damaged: it is empty, so what this host has spent is not known; remove it when the store is back", path)
	}
	s.local, err = sqlitestore.Open(ctx, path, sqlitestore.Options{Timeout: localTimeout, History: -1, Clocks: s.o.Clocks})
	return s.local, err
}

// part is a limit reduced to what this host may spend while the store is out of
// reach. For a bucket that several hosts share it is 0: each host's part would
// refill at the whole bucket's rate.
func (s *Store) part(l limit.Limit) limit.Limit {
	part := s.o.Allowance
	switch {
	case l.Quota == 0:
		part = min(part, l.Limit)
	case l.Window.Kind == limit.Bucket && s.o.Hosts > 1:
		part = 0
	default:
		part = min(part, l.Headroom/s.o.Hosts)
	}
	l.Limit, l.Quota, l.Headroom, l.Auto, l.OutagePart = part, 0, 0, 0, 0
	l.Shares = nil // the allowance ignores them
	return l
}

// withoutStore decides by the allowance the items with policy open that have no
// decision yet.
func (s *Store) withoutStore(ctx context.Context, batch driver.Batch, decided driver.Decisions) (driver.Decisions, error) {
	if s.o.Dir == "" || s.o.Allowance == 0 {
		for i, item := range batch.Items {
			if d := &decided.Items[i]; item.OnStoreError == driver.Open && d.Err != nil {
				d.Err = fmt.Errorf("%w; its policy is open, but this host has no allowance to spend: set outage_allowance in [store]", d.Err)
			}
		}
		return decided, nil
	}
	s.memory.refresh(batch.Budget)
	local := driver.Batch{Budget: batch.Budget, Now: batch.Now, Observe: batch.Observe}
	for _, l := range batch.Limits {
		local.Limits = append(local.Limits, s.part(l))
	}
	var places []int
	for i, item := range batch.Items {
		d := &decided.Items[i]
		if item.OnStoreError != driver.Open || d.Result != driver.Unreached && d.Result != driver.OutcomeUnknown {
			continue
		}
		if at, wait, t := s.exhausted(batch, item); wait > 0 {
			unsure := d.Result == driver.OutcomeUnknown
			*d = driver.Decision{Result: driver.Refused, Limit: at, RetryAt: decided.Now + wait, Allowance: true, Locked: t.Locked, Why: t.Why, Unsure: unsure}
			continue
		}
		if name := s.nothing(local.Limits, item); name != "" {
			d.Err = fmt.Errorf("%w; limit %s leaves this host no allowance", d.Err, name)
			continue
		}
		item.Deadline, item.UseHeadroom = time.Time{}, false
		local.Items, places = append(local.Items, item), append(places, i)
	}
	if len(places) == 0 {
		return decided, nil
	}
	// The store may have used up the caller's deadline. The allowance has its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), localTimeout)
	defer cancel()
	answers, err := s.spend(ctx, local)
	for j, i := range places {
		d := &decided.Items[i]
		switch {
		case err != nil:
			d.Err = fmt.Errorf("%w; the host's allowance cannot be spent either: %w", d.Err, detached(err))
		case answers[j].Result == driver.Conflict:
			*d = answers[j]
		case answers[j].Result == driver.Granted:
			*d = answers[j]
			d.Allowance = true
			item := batch.Items[i]
			if item.DryRun {
				continue
			}
			s.log.Info("granted by the host's allowance; the store is out of reach", "budget", batch.Budget, "operation", item.Operation, "id", item.ID,
				"units", item.Units, "job", item.Labels.Job, "region", item.Labels.Region, "run", item.Labels.Run, "limit", local.Limits[max(0, d.Limit)].Name, "left", d.Remaining)
		case answers[j].Err != nil:
			d.Err = fmt.Errorf("%w; the host's allowance cannot be spent either: %w", d.Err, detached(answers[j].Err))
		default:
			d.Limit = answers[j].Limit
			d.Err = fmt.Errorf("%w; the host's allowance of limit %s has %d left", d.Err, local.Limits[max(0, answers[j].Limit)].Name, answers[j].Remaining)
		}
	}
	return decided, nil
}

// detached keeps the text of an error but not its chain, so that errors.Is does not
// take an error of the host's own ledger for one of the store's.
func detached(err error) error { return errors.New(err.Error()) }

// exhausted returns the limit that, by the store's last answers, stays exhausted or
// locked the longest, among those that an item is checked against. limit is −1 for
// a lock on the whole budget. wait is in µs, 0 when nothing refuses the item.
func (s *Store) exhausted(batch driver.Batch, item driver.Item) (limit int, wait int64, how facts) {
	limit = -1
	if !batch.Observe {
		wait, how = s.memory.refusedFor(batch.Budget, "")
	}
	for i, l := range batch.Limits {
		if l.Observe || !item.CheckedBy(l) {
			continue
		}
		if left, t := s.memory.refusedFor(batch.Budget, l.Name); left > wait {
			limit, wait, how = i, left, t
		}
	}
	return limit, wait, how
}

// nothing names a limit that leaves the item nothing to spend, or returns "".
func (s *Store) nothing(limits []limit.Limit, item driver.Item) string {
	for _, l := range limits {
		if item.CheckedBy(l) && l.Limit <= 0 && !l.Observe {
			return l.Name
		}
	}
	return ""
}

// longest returns the length of the longest window that counts an operation, in µs.
func longest(limits []limit.Limit, operation string) (held int64) {
	for _, l := range limits {
		if l.Covers(operation) {
			held = max(held, l.Longest())
		}
	}
	return held
}

// spend decides by the allowance. It writes each charge to the journal before it
// returns the grant.
func (s *Store) spend(ctx context.Context, batch driver.Batch) ([]driver.Decision, error) {
	ledger, err := s.allowance(ctx)
	if err != nil {
		return nil, err
	}
	boot, now, err := s.boot()
	if err != nil {
		return nil, err
	}
	decided, err := ledger.Decide(ctx, batch)
	if err != nil {
		return nil, err
	}
	for i, d := range decided.Items {
		item := batch.Items[i]
		if d.Result != driver.Granted || item.DryRun {
			continue
		}
		r := &record{Budget: batch.Budget, ID: item.ID, Boot: boot, At: now, Charge: &chargeRecord{
			Operation: item.Operation, Units: item.Units, Lease: item.Lease, Held: longest(batch.Limits, item.Operation), Job: item.Labels.Job, Region: item.Labels.Region, Run: item.Labels.Run, Fence: item.Fence,
		}}
		if before, err := s.journal.find(r); d.Replayed && err == nil && before != nil {
			continue
		}
		// A replay has no record if the store has the charge already, and then recording
		// it again changes nothing; or if the process ended before it wrote the record.
		if err := s.journal.write(r); err != nil {
			decided.Items[i] = driver.Decision{Result: driver.Unreached, Limit: -1, Err: fmt.Errorf("write the charge down before granting it: %w", err)}
		}
	}
	return decided.Items, nil
}
