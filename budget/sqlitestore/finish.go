package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// maxSum is the largest total of a ledger that a settle upwards may lead to.
const maxSum = 9 * limit.MaxUnits

// Finish implements driver.Store.
func (s *Store) Finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	began := time.Now()
	caller := func() int64 { return finishes.Now + time.Since(began).Microseconds() }
	var answers []driver.Finished // of committed transactions
	for {
		var next []driver.Finished
		err := s.write(bounded, func(c *conn) (err error) {
			next, err = s.finish(c, finishes, answers, caller)
			return err
		})
		if err == nil {
			answers = next
		}
		switch {
		case err == nil && len(answers) == len(finishes.Items):
			return answers, nil
		case err == nil:
			err = s.pause(bounded)
		case errors.Is(err, errRedo):
			err = nil
		}
		if err != nil {
			return nil, s.explain(ctx, "settle or release reservations of "+finishes.Budget, err)
		}
	}
}

// finish settles and releases within a transaction, after those that are done. It does fewer than
// all if it removed forgotten entries first, which another transaction goes on with.
func (s *Store) finish(c *conn, finishes driver.Finishes, done []driver.Finished, caller func() int64) ([]driver.Finished, error) {
	l, err := s.ledger(c, finishes.Budget)
	if err != nil {
		return nil, err
	}
	clock, anchor, err := s.clocks.read(l.anchor)
	if err != nil {
		return nil, err
	}
	when, err := l.enter(clock, finishes.Now, s.clocks.oneBoot(l.anchor))
	if err != nil {
		return nil, err
	}
	kept := l.b != 0 && slices.ContainsFunc(finishes.Items[len(done):], func(f driver.Finish) bool { return !late(f.Deadline, caller()) })
	if kept {
		l.keep(clock, when.now, anchor)
	}
	all, err := l.finishAll(finishes.Items, done, when, s.steps, caller)
	if err == nil && kept {
		err = l.write()
	}
	if err == nil && finishedLate(finishes.Items, all, len(done), caller()) {
		err = errRedo
	}
	return all, err
}

// finishAll finishes what is not done yet, and returns the answers to all; to fewer if forgotten
// entries must be removed first, and it removed some.
func (l *ledger) finishAll(items []driver.Finish, done []driver.Finished, when moment, steps int, caller func() int64) ([]driver.Finished, error) {
	all := slices.Clone(done)
	for _, f := range items[len(done):] {
		answer := driver.Finished{Now: when.clock, Result: driver.FinishExpired}
		if late(f.Deadline, caller()) {
			answer.Result = driver.FinishLate
		} else if l.b != 0 {
			more, err := l.finishOne(f, when, steps, &answer)
			if err != nil || more {
				return all, err
			}
		}
		all = append(all, answer)
	}
	return all, nil
}

// finishedLate reports whether a deadline passed of what this transaction finished, from the
// place from on.
func finishedLate(items []driver.Finish, all []driver.Finished, from int, caller int64) bool {
	for i := from; i < len(all); i++ {
		if all[i].Result != driver.FinishLate && late(items[i].Deadline, caller) {
			return true
		}
	}
	return false
}

// finishOne settles or releases one reservation. more: forgotten entries must be removed first, and
// it removed some.
func (l *ledger) finishOne(f driver.Finish, when moment, steps int, answer *driver.Finished) (more bool, err error) {
	e, err := l.entryAt(f.ID)
	if err != nil || !l.held(e, when.now) {
		return false, err
	}
	if e.state == stateOpen && !f.Release && f.Units > e.units && l.units+f.Units-e.units > maxSum {
		// Forgotten entries must not count toward maxSum.
		if more, err = l.prune(steps); err != nil || more {
			return more, err
		}
	}
	answer.Result, answer.Replayed, answer.At, err = l.end(e, f, when)
	return false, err
}

// end ends a held entry, and returns the result, whether it had ended so before, and when.
func (l *ledger) end(e *entry, f driver.Finish, when moment) (result driver.FinishResult, replayed bool, at int64, err error) {
	now := when.now
	l.holds.end(now)
	switch {
	case e.state == stateSettled && !f.Release && e.units == f.Units:
		return driver.Settled, true, e.score, nil
	case e.state == stateReleased && f.Release:
		return driver.Released, true, e.score, nil
	case e.state != stateOpen:
		return driver.FinishConflict, false, e.score, nil
	case f.Release && now-f.Age >= e.score:
		return driver.FinishExpired, false, e.score, nil
	case f.Release:
		l.finishMeters(e, 0, true, now, when.drains())
		at = l.ended(e, max(now, when.later)-f.Age)
		if err := l.noteEnd(e, -e.units, -1); err != nil {
			return 0, false, 0, err
		}
		l.holds.finish(e.id, e.units, 0, true)
		return driver.Released, false, at, l.finish(e, stateReleased, 0, at, now)
	case l.units+f.Units-e.units > maxSum, l.overfull(e, f.Units, now):
		return driver.FinishOverflow, false, e.score, nil
	}
	at = l.ended(e, max(now, when.later)-f.Age)
	l.finishMeters(e, f.Units, false, now, when.drains())
	if err := l.noteEnd(e, f.Units-e.units, 0); err != nil {
		return 0, false, 0, err
	}
	l.holds.finish(e.id, e.units, f.Units, false)
	return driver.Settled, false, at, l.finish(e, stateSettled, f.Units, at, now)
}

// ended is the instant to record as a reservation's end: at, moved into its lease and past
// what is forgotten or merged.
func (l *ledger) ended(e *entry, at int64) int64 {
	return min(e.score, max(at, e.start, l.earliest(l.last)))
}

func (s *Store) acceptClock(ctx context.Context, name string) error {
	return s.write(ctx, func(c *conn) error {
		l, err := s.ledger(c, name)
		if err != nil {
			return err
		}
		clock, anchor, err := s.clocks.read(l.anchor)
		if err != nil {
			return err
		}
		if l.b == 0 {
			if err := l.create(clock); err != nil {
				return err
			}
		}
		l.keep(clock, max(l.last, clock), anchor)
		l.postpone()
		return l.write()
	})
}
