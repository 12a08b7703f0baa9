package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

func wallClock() int64 { return time.Now().UnixMicro() }

// Finish implements driver.Store. While the store is out of reach, or charges from an
// outage are not recorded yet, it writes the finish down, to be recorded later. The
// policy does not matter: a finish is not new spending.
func (s *Store) Finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	var done []driver.Finished
	began, err := time.Now(), errPending
	if !s.journal.pending(finishes.Budget) {
		now, unsure := tryClock(finishes.Now), false
		var lost error
		_, err = s.reach(ctx, finishes.Budget, func(ctx context.Context) (err error) {
			try := finishes
			try.Now = now()
			done, err = s.inner.Finish(ctx, try)
			late, again := s.lateFinishes(finishes, done, now())
			switch {
			case again:
				return errLate
			case late && unsure: // an earlier try may have recorded it
				lost = errUnheard
			case err == nil:
				s.ended(finishes, done)
			}
			unsure = unsure || err != nil
			return err
		})
		err = cmp.Or(err, lost)
	}
	if err == nil || !unreached(ctx, err) || s.o.Dir == "" {
		return done, err
	}
	kept, keepErr := s.keepFinishes(context.WithoutCancel(ctx), finishes, began)
	if keepErr != nil {
		return nil, fmt.Errorf("%w; it cannot be written down either: %w", err, detached(keepErr))
	}
	return kept, nil
}

// lateFinishes reports whether a store that is far away handled any after its deadline, and whether
// the caller of such a one has time left at now, in µs.
func (s *Store) lateFinishes(finishes driver.Finishes, done []driver.Finished, now int64) (late, again bool) {
	for i := range done {
		if s.far != nil && done[i].Result == driver.FinishLate {
			late, again = true, again || finishes.Items[i].Deadline.UnixMicro() > now
		}
	}
	return late, again
}

// ended remembers the ends of reservations.
func (s *Store) ended(finishes driver.Finishes, done []driver.Finished) {
	for i := range done {
		s.memory.ended(finishes.Budget, finishes.Items[i], done[i])
	}
}

// keepFinishes writes down the ends of reservations, side by side.
func (s *Store) keepFinishes(ctx context.Context, finishes driver.Finishes, began time.Time) ([]driver.Finished, error) {
	kept, errs := make([]driver.Finished, len(finishes.Items)), make([]error, len(finishes.Items))
	var all sync.WaitGroup
	for i, f := range finishes.Items {
		all.Go(func() { kept[i], errs[i] = s.keepFinish(ctx, finishes.Budget, finishes.Now, f, began) })
	}
	all.Wait()
	return kept, errors.Join(errs...)
}

// errPending: earlier charges must be recorded first. That takes the budget's limits,
// which a decision or a look has and a finish has not.
var errPending = fmt.Errorf("%w until now: the host's charges during an outage are not recorded yet", driver.ErrUnavailable)

// keepFinish writes down the end of a reservation, at the time at which its call began: the
// store may have been waited for until after the lease.
func (s *Store) keepFinish(ctx context.Context, name string, caller int64, f driver.Finish, began time.Time) (driver.Finished, error) {
	boot, now, err := s.boot()
	if err != nil {
		return driver.Finished{}, err
	}
	done := driver.Finished{Result: driver.Settled, At: caller, Now: caller}
	if f.Release {
		done.Result = driver.Released
	}
	r := &record{Budget: name, ID: f.ID, Boot: boot, At: now - time.Since(began).Microseconds() - f.Age, Finish: &finishRecord{Release: f.Release, Units: f.Units}}
	if f.Release {
		r.Finish.Units = 0
	}
	before, err := s.journal.find(r)
	switch {
	case err != nil:
		return done, err
	case before != nil && *before.Finish == *r.Finish:
		done.Replayed = true
		return done, nil
	case before != nil:
		done.Result = driver.FinishConflict
		return done, nil
	}
	// If the allowance granted the reservation, its ledger ends it too, and knows whether
	// this finish is valid.
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	granted, err := s.journal.find(&record{Budget: name, ID: f.ID, Charge: &chargeRecord{}})
	if err != nil {
		return done, err
	}
	if granted != nil {
		ledger, err := s.allowance(ctx)
		if err != nil {
			return done, err
		}
		f.Deadline = time.Time{}
		own, err := driver.FinishOne(ctx, ledger, name, caller, f)
		if err != nil {
			return done, err
		}
		if own.Result != driver.Settled && own.Result != driver.Released {
			return own, nil
		}
	}
	if err := s.journal.write(r); err != nil {
		return done, err
	}
	s.log.Info("the end of a reservation is written down, to be recorded when the store is back", "budget", name, "id", f.ID, "release", f.Release, "units", r.Finish.Units)
	return done, nil
}

// Look implements driver.Store.
func (s *Store) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	var view driver.View
	_, err := s.reach(ctx, look.Budget, func(ctx context.Context) (err error) {
		if err = s.replay(ctx, look.Budget, look.Limits, shows(look.Limits)); err != nil {
			return err
		}
		view, err = s.look(ctx, look)
		return err
	})
	if err != nil {
		return view, err
	}
	s.crowded(look.Budget, view.AtWork)
	return view, nil
}

// look asks the store and remembers its answer. It first records what the store has lost.
func (s *Store) look(ctx context.Context, look driver.Look) (view driver.View, err error) {
	look.Hosts = s.o.Hosts
	err = s.vouching(ctx, look.Budget, look.Now, look.Limits, func(mark driver.Mark, others []driver.Mark) error {
		look.Mark, look.Others = mark, others
		view, err = s.lookWith(ctx, look)
		return err
	})
	if err == nil {
		if err := s.memory.looked(look, view); err != nil {
			s.forgetful(look.Budget, err)
		}
	}
	return view, err
}

// lookWith asks the store. It returns ErrLost if the charge of any mark is missing.
func (s *Store) lookWith(ctx context.Context, look driver.Look) (driver.View, error) {
	view, err := s.inner.Look(ctx, look)
	if err == nil && len(view.Missing) > 0 {
		err = fmt.Errorf("look at %s: %w", look.Budget, driver.ErrLost)
	}
	return view, err
}

// Spent implements driver.Store.
func (s *Store) Spent(ctx context.Context, query driver.SpentQuery) (driver.Spent, error) {
	var view driver.Spent
	err := s.reachSlowly(ctx, query.Budget, func(ctx context.Context) (err error) {
		view, err = s.inner.Spent(ctx, query)
		return err
	})
	return view, err
}

// Budgets implements driver.Store.
func (s *Store) Budgets(ctx context.Context, upstream string, most int) ([]string, error) {
	return s.inner.Budgets(ctx, upstream, most)
}

// History implements driver.Store.
func (s *Store) History(ctx context.Context, query driver.HistoryQuery) (driver.History, error) {
	var view driver.History
	err := s.reachSlowly(ctx, query.Budget, func(ctx context.Context) (err error) {
		view, err = s.inner.History(ctx, query)
		return err
	})
	return view, err
}
