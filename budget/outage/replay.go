package outage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// replay has the store record the host's journal. On an error, the records made so far
// are out of the journal. complete reports whether limits are all the limits that the
// budget has for an operation.
func (s *Store) replay(ctx context.Context, name string, limits []limit.Limit, complete func(operation string) bool) error {
	if !s.journal.pending(name) {
		return nil
	}
	list, blocked := s.journal.list(name, func(path string, why error) {
		s.log.Error("a file of the host's journal cannot be read and is set aside", "budget", name, "file", path, "reason", why)
	})
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	var charges, finishes []entry
	for _, e := range list {
		if e.Charge == nil {
			finishes = append(finishes, e)
			continue
		}
		age, held := e.age(boot, now), longest(limits, e.Charge.Operation)
		switch {
		case age < driver.MinHeld/2, held >= e.Charge.Held, age >= e.Charge.Held:
			charges = append(charges, e)
		case !complete(e.Charge.Operation): // wait for a decision whose limits make the store hold it
		case age < held:
			charges = append(charges, e)
		default:
			why := fmt.Sprintf("it is %s old, and no limit counts operation %s for that long any more: when it was spent the longest window was %s, now it is %s",
				span(age), e.Charge.Operation, span(e.Charge.Held), span(held))
			if err := s.aside(name, e, why); err != nil {
				return err
			}
		}
	}
	for len(charges) > 0 {
		n := min(len(charges), driver.MaxBatch)
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

// span turns a time in µs into one for people, rounded to seconds.
func span(us int64) time.Duration { return (time.Duration(us) * time.Microsecond).Round(time.Second) }

// asksFor is replay's complete for a batch: its limits are complete for the operations of
// its items.
func asksFor(items []driver.Item) func(string) bool {
	return func(operation string) bool {
		return slices.ContainsFunc(items, func(i driver.Item) bool { return slices.Contains(i.Operations(), operation) })
	}
}

// shows is replay's complete for a look: its limits are complete, unless some are for one
// operation each. A look has those only for operations with a price.
func shows(limits []limit.Limit) func(string) bool {
	alone := func(operation string) bool {
		return slices.ContainsFunc(limits, func(l limit.Limit) bool { return strings.HasSuffix(l.Name, ":"+operation) })
	}
	some := slices.ContainsFunc(limits, func(l limit.Limit) bool { return strings.Contains(l.Name, ":") })
	return func(operation string) bool { return len(limits) > 0 && !some || alone(operation) }
}

// showsNothing is replay's complete for limits that may be only some of the budget's.
func showsNothing(string) bool { return false }

// recordCharges has the store record charges, and removes them from the journal.
func (s *Store) recordCharges(ctx context.Context, name string, limits []limit.Limit, list []entry) error {
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	batch := driver.Batch{Budget: name, Now: s.wall(), Limits: limits}
	for _, e := range list {
		batch.Items = append(batch.Items, e.item(e.age(boot, now)))
	}
	decided, err := s.decide(ctx, batch)
	if err != nil {
		return err
	}
	units := int64(0)
	for i, d := range decided.Items {
		switch d.Result {
		case driver.Granted:
			units += list[i].Charge.Units
			err = s.journal.remove(list[i])
		case driver.OutcomeUnknown:
			return d.Err
		case driver.Conflict:
			err = s.aside(name, list[i], "the store has another call under its id")
		case driver.Overflow:
			err = s.aside(name, list[i], "the ledger's sum would exceed its maximum")
		default:
			return fmt.Errorf("%w: the deadline passed before the store recorded the host's journal", driver.ErrUnavailable)
		}
		if err != nil {
			return err
		}
	}
	s.log.Info("the host's charges while the store was out of reach are recorded", "budget", name, "units", units, "calls", len(list))
	return nil
}

// recordFinish has the store record the end of a reservation, and removes it from the
// journal.
func (s *Store) recordFinish(ctx context.Context, name string, e entry) error {
	boot, now, err := s.boot()
	if err != nil {
		return err
	}
	f := driver.Finish{ID: e.ID, Release: e.Finish.Release, Units: e.Finish.Units, Age: e.age(boot, now)}
	done, err := driver.FinishOne(ctx, s.inner, name, s.wall(), f)
	if err != nil {
		return err
	}
	s.memory.ended(name, f, done)
	switch done.Result {
	case driver.Settled, driver.Released:
		return s.journal.remove(e)
	case driver.FinishExpired:
		s.log.Warn("a settlement or release that was made while the store was out of reach came after the end of its lease, or the store no longer holds the reservation; its units stay as reserved", "budget", name, "id", e.ID)
		return s.journal.remove(e)
	case driver.FinishConflict:
		return s.aside(name, e, "the store knows the id as a plain charge, or as finished in another way")
	case driver.FinishOverflow:
		return s.aside(name, e, "the ledger's sum would exceed its maximum")
	}
	return fmt.Errorf("%w: the deadline passed before the store recorded the host's journal", driver.ErrUnavailable)
}

// aside sets aside a record that the store refused.
func (s *Store) aside(name string, e entry, why string) error {
	s.log.Error("the store cannot record a charge or finish of this host; it is set aside", "budget", name, "id", e.ID, "reason", why, "file", e.path)
	return s.journal.setAside(name, e.path, errors.New(why))
}
