package outage

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotactl/quotactl/budget"
)

// replay has the store record what the host did on its own. An error means that
// the store failed on the way; what is recorded by then is out of the journal.
func (s *Store) replay(ctx context.Context, name string, limits []budget.Limit) error {
	if !s.journal.pending(name) {
		return nil
	}
	list, blocked := s.journal.list(name, func(path string, why error) {
		s.log.Error("what cannot be read of the host's journal is set aside", "budget", name, "file", path, "reason", why)
	})
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	var charges, finishes []entry
	for _, e := range list {
		if e.Charge != nil && e.age(boot, now) >= budget.MinHeld/2 && longest(limits, e.Charge.Operation) < e.Charge.Held {
			continue // until a decision carries the limits that make the store hold it
		}
		if e.Charge != nil {
			charges = append(charges, e)
		} else {
			finishes = append(finishes, e)
		}
	}
	for len(charges) > 0 {
		n := min(len(charges), budget.MaxBatch)
		if err := s.recordCharges(ctx, name, limits, charges[:n]); err != nil {
			return err
		}
		charges = charges[n:]
	}
	for _, e := range finishes {
		if err := s.recordFinish(ctx, name, e); err != nil {
			return err
		}
	}
	s.journal.tidy(name)
	return blocked
}

// recordCharges has charges recorded.
func (s *Store) recordCharges(ctx context.Context, name string, limits []budget.Limit, list []entry) error {
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	batch := budget.Batch{Budget: name, Now: s.wall(), Limits: limits}
	for _, e := range list {
		batch.Items = append(batch.Items, e.item(e.age(boot, now)))
	}
	decided, err := s.decide(ctx, batch)
	if err != nil {
		return err
	}
	s.remember(batch, decided)
	units := int64(0)
	for i, d := range decided.Items {
		switch d.Result {
		case budget.Granted:
			units += list[i].Charge.Units
			err = s.journal.remove(list[i])
		case budget.OutcomeUnknown:
			return d.Err
		case budget.Conflict:
			err = s.aside(name, list[i], "its id stands for another call in the store")
		case budget.Overflow:
			err = s.aside(name, list[i], "the ledger's sum would pass what it can hold")
		default:
			return fmt.Errorf("%w: the store came to what the host has to record past its deadline", budget.ErrUnavailable)
		}
		if err != nil {
			return err
		}
	}
	s.log.Info("what the host spent while the store was out of reach is recorded", "budget", name, "units", units, "calls", len(list))
	return nil
}

// recordFinish has the end of a reservation recorded.
func (s *Store) recordFinish(ctx context.Context, name string, e entry) error {
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	done, err := s.inner.Finish(ctx, budget.Finish{
		Budget: name, Now: s.wall(), ID: e.ID, Release: e.Finish.Release, Units: e.Finish.Units, Age: e.age(boot, now),
	})
	if err != nil {
		return err
	}
	switch done.Result {
	case budget.Settled, budget.Released:
		return s.journal.remove(e)
	case budget.FinishExpired:
		s.log.Warn("a reservation ended while the store was out of reach, and is not held any more; its units stay as reserved", "budget", name, "id", e.ID)
		return s.journal.remove(e)
	case budget.FinishConflict:
		return s.aside(name, e, "the store knows the id as a plain charge, or as finished in another way")
	case budget.FinishOverflow:
		return s.aside(name, e, "the ledger's sum would pass what it can hold")
	}
	return fmt.Errorf("%w: the store came to what the host has to record past its deadline", budget.ErrUnavailable)
}

// aside keeps a record that the store would not take.
func (s *Store) aside(name string, e entry, why string) error {
	s.log.Error("what the host spent cannot be recorded and is set aside", "budget", name, "id", e.ID, "reason", why, "file", e.path)
	return s.journal.setAside(name, e.path, errors.New(why))
}
