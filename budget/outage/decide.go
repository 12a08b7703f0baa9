package outage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Decide implements driver.Store. Before the store decides, it records the host's
// journal. While the store is out of reach, the allowance decides items whose policy is
// open. The others are Unreached, or OutcomeUnknown if the store had been asked.
func (s *Store) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	var decided driver.Decisions
	unsure, now := false, tryClock(batch.Now)
	asked, err := s.reach(ctx, batch.Budget, func(ctx context.Context) (err error) {
		batch.Now = now() // the items' deadlines are by this clock
		if err = s.replay(ctx, batch.Budget, batch.Limits, asksFor(batch.Items)); err != nil {
			return err
		}
		decided, err = s.decide(ctx, batch)
		for i, d := range decided.Items { // of a try that charged nothing, perhaps after one that did
			if unsure && (d.Result == driver.Late || d.Result == driver.Interrupted) {
				decided.Items[i] = driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: driver.ErrUnavailable}
			}
		}
		if s.far != nil && err == nil {
			err = outOfTime(batch.Items, decided, now())
		}
		unsure = unsure || err != nil && !errors.Is(err, driver.ErrNotCharged)
		return err
	})
	switch {
	case err == nil:
		decided = s.withinPart(ctx, batch, decided)
		s.crowded(batch.Budget, decided.AtWork)
		return s.unknown(ctx, batch, decided)
	case !unreached(ctx, err):
		return driver.Decisions{}, err
	}
	result := driver.Decision{Result: driver.Unreached, Limit: -1, Err: err}
	if asked = asked && !errors.Is(err, driver.ErrNotCharged); asked {
		result.Result = driver.OutcomeUnknown
	}
	decided = driver.Decisions{Now: batch.Now, Items: make([]driver.Decision, len(batch.Items))}
	open, at := false, now()
	batch.Items = slices.Clone(batch.Items)
	for i := range batch.Items {
		item := &batch.Items[i]
		if s.far != nil && !item.Deadline.IsZero() && item.Deadline.UnixMicro() <= at {
			item.OnStoreError = driver.Closed // its caller has given up, and expects that nothing is charged later
		}
		decided.Items[i] = result
		open = open || item.OnStoreError == driver.Open
	}
	if !open {
		if asked {
			return driver.Decisions{}, err
		}
		return decided, nil
	}
	return s.withoutStore(ctx, batch, decided)
}

// outOfTime returns errLate or errUnheard if a try decided nothing since its time had passed, although a
// caller has time left at now, in µs.
func outOfTime(items []driver.Item, decided driver.Decisions, now int64) error {
	left, err := false, errLate
	for i, d := range decided.Items {
		switch {
		case d.Result == driver.OutcomeUnknown && errors.Is(d.Err, driver.ErrUnavailable):
			err = errUnheard
		case d.Result != driver.Late && d.Result != driver.Interrupted:
			return nil
		}
		left = left || items[i].Deadline.IsZero() || items[i].Deadline.UnixMicro() > now
	}
	if !left {
		return nil
	}
	return err
}

// forgetful logs that the memory could not be written.
func (s *Store) forgetful(budget string, err error) {
	s.log.Warn("the store's answers cannot be written down; a loss of its data may go unnoticed", "budget", budget, "error", err)
}

// decide asks the store and remembers its answer. It first records what the store has
// lost.
func (s *Store) decide(ctx context.Context, batch driver.Batch) (decided driver.Decisions, err error) {
	batch.Host, batch.Hosts = s.host(), s.o.Hosts
	err = s.vouching(ctx, batch.Budget, batch.Now, batch.Limits, func(mark driver.Mark, others []driver.Mark) error {
		batch.Mark, batch.Others = mark, others
		decided, err = s.inner.Decide(ctx, batch)
		return err
	})
	for i := range decided.Items { // an earlier try has charged a new id, and its answer was lost
		if d := &decided.Items[i]; batch.Items[i].NewID && d.Ended == "" {
			d.Replayed = false
		}
	}
	if err == nil {
		s.ended(driver.Finishes{Budget: batch.Budget, Items: batch.Finishes}, decided.Finished)
		if err := s.memory.saw(batch, decided); err != nil {
			s.forgetful(batch.Budget, err)
		}
	}
	return decided, err
}

// maxLosses bounds how many losses one call notices and recovers from.
const maxLosses = 3

// vouching asks the store with the last mark that the host has of the ledger. If the
// store has lost something, vouching records it and asks again. A loss that another call
// or process of the host has recovered meanwhile does not count toward maxLosses: the
// next try carries the new ledger's mark, and only the context bounds these tries.
func (s *Store) vouching(ctx context.Context, name string, now int64, limits []limit.Limit, ask func(mark driver.Mark, others []driver.Mark) error) error {
	for losses := 0; ; {
		if err := s.recover(ctx, name, now, limits); err != nil {
			return err
		}
		mark, others := s.memory.mark(name)
		err := ask(mark, others)
		if err != nil {
			s.memory.unanswered(name, others)
		}
		if !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrDamaged) {
			return err
		}
		switch noticed, recoverable := s.memory.miss(name, mark); {
		case !recoverable || noticed && losses == maxLosses:
			return err
		case noticed:
			losses++
		}
	}
}

// unknown has the allowance decide the items for which the store failed in the middle
// of the batch.
func (s *Store) unknown(ctx context.Context, batch driver.Batch, decided driver.Decisions) (driver.Decisions, error) {
	for i, d := range decided.Items {
		if d.Result == driver.OutcomeUnknown && batch.Items[i].OnStoreError == driver.Open && unreached(ctx, d.Err) {
			return s.withoutStore(ctx, batch, decided)
		}
	}
	return decided, nil
}

// recover has the store record what it has lost of the limits, if anything, and the locks that
// this host made alone.
func (s *Store) recover(ctx context.Context, name string, now int64, limits []limit.Limit) error {
	s.memory.freshen(name)
	if err := s.relock(ctx, name, now, true); err != nil && !errors.Is(err, driver.ErrDamaged) {
		return err
	}
	for range maxLosses { // recording may show that more is missing
		list := s.memory.lost(name, limits)
		if len(list) == 0 {
			break
		}
		unlocked := s.relock(ctx, name, now, false)
		if unlocked != nil && !errors.Is(unlocked, driver.ErrDamaged) {
			return unlocked
		}
		own, err := s.lacks(ctx, name, now, limits)
		if errors.Is(err, driver.ErrDamaged) { // a recovery begins a damaged ledger anew
			if err = s.recoverOne(ctx, list[0], now); err == nil {
				own, err = s.lacks(ctx, name, now, limits)
			}
		}
		if err != nil {
			return fmt.Errorf("record what the store has lost: %w", err)
		}
		for more := true; more; {
			for i, recovery := range list {
				s.tell(&recovery, own)
				// With the last recovery the host has reported all it knows, unless it knows of
				// limits outside this call.
				if i == len(list)-1 && s.memory.charges(name) && !s.memory.owesMore(name, limits) {
					recovery.Host = s.host()
				}
				if err := s.recoverOne(ctx, recovery, now); err != nil {
					return err
				}
			}
			// Meanwhile another process that does not know of the loss may have written down
			// its charges. It will not report them, so this call does.
			before := own
			if own, err = s.lacks(ctx, name, now, limits); err != nil {
				return fmt.Errorf("record what the store has lost: %w", err)
			}
			more = exceeds(own, before, limits)
		}
		if unlocked != nil { // a damaged ledger accepts locks only once it is begun anew
			if err := s.relock(ctx, name, now, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverOne has the store record one recovery, and remembers that it did.
func (s *Store) recoverOne(ctx context.Context, recovery driver.Recovery, now int64) error {
	recovery.Now, recovery.Hosts = now, s.o.Hosts
	recovered, err := driver.Apply(ctx, s.inner, recovery)
	if err != nil {
		return fmt.Errorf("record what the store has lost: %w", err)
	}
	if err := s.memory.recovered(recovery, recovered.Mark); err != nil {
		s.log.Warn("a recovery cannot be written down, and may be repeated", "budget", recovery.Budget, "error", err)
	}
	for i, limit := range recovery.Limits {
		if recovery.Used[i] > 0 && recovered.Amounts[i] > 0 {
			s.log.Warn("the store has lost charges; what it lacked was recorded", "budget", recovery.Budget, "limit", limit.Name,
				"recovered", recovered.Amounts[i], "seen", recovery.Used[i], "begun_anew", recovered.Anew)
		}
	}
	return nil
}
