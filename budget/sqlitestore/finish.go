package sqlitestore

import (
	"context"
	"errors"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// maxSum is the largest total of a ledger that a settle upwards may lead to.
const maxSum = 9 * limit.MaxUnits

// Finish implements driver.Store.
func (s *Store) Finish(ctx context.Context, f driver.Finish) (driver.Finished, error) {
	what := "settle " + f.ID + " of " + f.Budget
	if f.Release {
		what = "release " + f.ID + " of " + f.Budget
	}
	bounded, cancel := s.bound(ctx)
	defer cancel()
	began := time.Now()
	caller := func() int64 { return f.Now + time.Since(began).Microseconds() }
	for {
		var answer driver.Finished
		more := false
		err := s.write(bounded, func(c *conn) (err error) {
			answer, more, err = s.finish(c, f, caller)
			return err
		})
		switch {
		case err == nil && !more:
			return answer, nil
		case err == nil:
			err = s.pause(bounded)
		case errors.Is(err, errRedo):
			err = nil
		}
		if err != nil {
			return driver.Finished{}, s.explain(ctx, what, err)
		}
	}
}

// finish settles or releases within a transaction. more: forgotten entries must be removed
// first, and this transaction removed some.
func (s *Store) finish(c *conn, f driver.Finish, caller func() int64) (answer driver.Finished, more bool, err error) {
	l, err := s.ledger(c, f.Budget)
	if err != nil {
		return answer, false, err
	}
	clock, anchor, err := s.clocks.read(l.anchor)
	if err != nil {
		return answer, false, err
	}
	when, err := l.enter(clock, f.Now, s.clocks.oneBoot(l.anchor))
	if err != nil {
		return answer, false, err
	}
	answer.Now = when.clock
	now := when.now
	switch {
	case late(f.Deadline, caller()):
		answer.Result = driver.FinishLate
		return answer, false, nil
	case l.b == 0:
		answer.Result = driver.FinishExpired
		return answer, false, nil
	}
	l.keep(clock, now, anchor)
	e, err := l.entryAt(f.ID)
	if err != nil {
		return answer, false, err
	}
	if !l.held(e, now) {
		answer.Result = driver.FinishExpired
		return answer, false, l.write()
	}
	if e.state == stateOpen && !f.Release && f.Units > e.units && l.units+f.Units-e.units > maxSum {
		// Forgotten entries must not count toward maxSum.
		if more, err = l.prune(s.steps); err == nil && more {
			return answer, true, l.write()
		}
		if err != nil {
			return answer, false, err
		}
	}
	answer.Result, answer.Replayed, answer.At, err = l.end(e, f, when)
	if err == nil {
		err = l.write()
	}
	if err == nil && late(f.Deadline, caller()) {
		err = errRedo
	}
	return answer, false, err
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
