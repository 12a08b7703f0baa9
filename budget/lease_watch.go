package budget

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// resetMargin is how long before a calendar's reset a lease's takes end, so that it is
// settled in the period in which they were made.
const resetMargin = 50 * time.Millisecond

// A ledger shows a reset in the windows that reach back to it. leastWatched is the shortest
// that surely reaches back from one look to the one before. Where a budget has none, the
// lease brings probeWindow along: what a ledger keeps for the ids anyway.
const leastWatched = 10 * time.Second

var probeWindow = limit.Limit{
	Name: "~lease", Limit: limit.MaxUnits, Counts: limit.CountUnits, Observe: true,
	Window: limit.Window{Kind: limit.Rolling, Length: driver.MinHeld},
}

// watched lists the limits to look at.
func (l *Lease) watched() {
	l.limits = l.budget.limits([]string{l.call.Operation})
	l.probe = !slices.ContainsFunc(l.limits, func(l limit.Limit) bool {
		return l.Window.Kind == limit.CalendarKind || l.Window.Kind == limit.Rolling && l.Window.Length >= leastWatched.Microseconds()
	})
	if l.probe {
		l.limits = append(l.limits, probeWindow)
	}
}

// makeLive has the ledger keep the total of probeWindow, which each look would sum up
// otherwise.
func (l *Lease) makeLive(ctx context.Context) {
	if !l.probe {
		return
	}
	b := l.budget
	_, err := ask(ctx, b, b.store.Decide, driver.Batch{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: l.limits, Observe: b.spec.Observe, Table: b.table})
	l.probe = err != nil // it only saves work: the next charge tries again
}

// look asks the store for what ends takes. If nothing does, the holding is fresh again;
// otherwise it is dropped. After an error it stays unchanged, unless the ledger was
// lost.
func (l *Lease) look(ctx context.Context) error {
	b := l.budget
	asked := time.Now()
	l.asked = asked
	view, err := ask(ctx, b, b.store.Look, driver.Look{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: l.limits, Mark: l.mark})
	if errors.Is(err, ErrLost) {
		l.mark = driver.Mark{}
		l.drop()
	}
	if err != nil {
		return err
	}
	l.looked = asked
	same := l.mark.Ledger == "" || l.mark.Ledger == view.Mark.Ledger
	l.mark = view.Mark
	if h := l.held.Load(); h == nil || h.receipt.Source != SourceStore {
		return nil
	} else if !same || l.ended(h, view) {
		l.drop()
	} else {
		h.confirm(asked)
	}
	return nil
}

// ended reports whether takes from a holding must end: its lease is over by the store's
// clock, the ledger was reset since, or a lock or a fence closes it to the call.
func (l *Lease) ended(h *holding, view driver.View) bool {
	if view.Now >= h.over {
		return true
	}
	for _, seen := range view.Limits {
		if seen.Since > h.receipt.At.UnixMicro() {
			return true
		}
	}
	for _, lock := range view.Locks {
		switch {
		case lock.Limit == "":
			if !l.budget.spec.Observe {
				return true
			}
		case driver.IsFence(lock.Limit):
			if lock.Limit == l.fence {
				return true
			}
		case slices.ContainsFunc(l.limits, func(one limit.Limit) bool {
			return one.Name == lock.Limit && one.Covers(l.call.Operation) && !one.Observe
		}):
			return true
		}
	}
	return false
}

// calendars lists the calendar windows that count the lease.
func (l *Lease) calendars() (list []limit.Window) {
	for _, one := range l.limits {
		if one.Window.Kind == limit.CalendarKind && one.Covers(l.call.Operation) {
			list = append(list, one.Window)
		}
	}
	return list
}

// untilReset is how long after an instant (µs) a charge may finish without counting in one
// more period of a calendar; false if there is no calendar.
func (l *Lease) untilReset(at int64) (least time.Duration, some bool) {
	for _, w := range l.calendars() {
		cut := w.AfterReset().Cut(at)
		if cut < at { // in the guard around a reset: the one after it
			cut = w.AfterReset().Cut(at + 2*w.Guard)
		}
		if left := time.Duration(cut-at) * time.Microsecond; !some || left < least {
			least, some = left, true
		}
	}
	return least, some
}

// beforeReset is how long a charge that is made now lasts: the span, or less if a reset
// comes first. Right before a reset it waits until that has passed, or the context ends.
func (l *Lease) beforeReset(ctx context.Context) time.Duration {
	left, some := l.untilReset(l.budget.now().UnixMicro())
	if some && left < min(l.span, 2*resetMargin) {
		timer := time.NewTimer(left + time.Microsecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		left, some = l.untilReset(l.budget.now().UnixMicro())
	}
	if some && left >= resetMargin { // otherwise the clock stands still, or the context has ended: it counts in both periods
		return min(l.span, left)
	}
	return l.span
}

// endOf is when takes from a charge end, by this process's clock: with its lease, or a
// margin before the reset that comes first by the store's clock.
func (l *Lease) endOf(receipt Receipt, asked time.Time, lease time.Duration) time.Time {
	if left, some := l.untilReset(receipt.At.UnixMicro()); some && left <= lease {
		if left > resetMargin {
			left -= resetMargin
		}
		return asked.Add(left)
	}
	return asked.Add(lease)
}
