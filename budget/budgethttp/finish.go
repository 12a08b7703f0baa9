package budgethttp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// within is the context for a request's calls to the store, which goes on when the request's own
// context has ended. The budget bounds each call by the store's timeout, from when the store is
// asked: a deadline here would count the wait for the process's other calls, too.
func (a *attempt) within() (context.Context, context.CancelFunc) {
	a.mu.Lock()
	until := a.until
	a.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.request.Context()))
	if until == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(until, cancel)
	return ctx, func() { stop(); cancel() }
}

// goOnUntil makes a context bound everything that is recorded from now on.
func (a *attempt) goOnUntil(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = ctx
}

func (a *attempt) logger(id string) *slog.Logger {
	return a.options.Log.With("budget", a.budget.Name(), "operation", a.operation, "id", id)
}

// take returns the charges to finish, once, and how often the request was sent without
// one.
func (a *attempt) take() (charges []*budget.Reservation, unbooked int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	charges, unbooked = a.charges, a.unbooked
	a.charges = nil
	return charges, unbooked
}

// units is how many units each sending of the request was charged.
func (a *attempt) units() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.receipt.Units
}

// settle finishes the charges: the last at what the request cost, the earlier ones, for
// what the base had sent before, at what they were charged.
func (a *attempt) settle(units int64) {
	charges, unbooked := a.take()
	for i, r := range charges {
		cost := r.Units
		if i == len(charges)-1 {
			cost = min(units+unbooked*r.Units, limit.MaxUnits)
		}
		ctx, cancel := a.within()
		if err := r.Settle(ctx, cost); err != nil {
			a.unsettled(r.ID, cost, err)
		}
		cancel()
		a.options.Observer.Settled(r.Receipt, cost)
	}
}

// settleSoon settles a request that cost what it was charged, without waiting. False: it did
// nothing, and settle is to.
func (a *attempt) settleSoon(units int64) bool {
	a.mu.Lock()
	var r *budget.Reservation
	if len(a.charges) == 1 && a.unbooked == 0 && a.charges[0].Units == units {
		r = a.charges[0]
	}
	if r == nil || !r.SettleSoon(func(err error) { a.unsettled(r.ID, units, err) }) {
		a.mu.Unlock()
		return false
	}
	a.charges = nil
	a.mu.Unlock()
	a.options.Observer.Settled(r.Receipt, units)
	return true
}

// unsettled logs why a request was not settled.
func (a *attempt) unsettled(id string, units int64, err error) {
	a.logger(id).Warn("a request could not be settled: it counts as charged until its lease ends, then finished", "units", units, "error", err)
}

// release gives back the charge of a request that provably never left or is documented as
// not counted. It keeps a session's charge, because the session's next request will find it.
// It reports whether the last charge was given back.
func (a *attempt) release() (released bool) {
	if a.once {
		a.leave()
		return false
	}
	charges, _ := a.take()
	for i, r := range charges {
		ctx, cancel := a.within()
		var err error
		units := int64(0)
		if i == len(charges)-1 {
			err = r.Release(ctx)
			released = err == nil
		} else { // sent earlier, on a connection that died
			units = r.Units
			err = r.Settle(ctx, units)
		}
		cancel()
		if err != nil {
			units = r.Units
			level := slog.LevelWarn
			if errors.Is(err, budget.ErrExpired) {
				level = slog.LevelInfo
			}
			a.logger(r.ID).Log(ctx, level, "a request that was not counted stays charged", "error", err)
		}
		a.options.Observer.Settled(r.Receipt, units)
	}
	return released
}

// leave settles the charges once the request cannot arrive any more, unless their lease ends by
// then. If that is not recorded, they run to its end.
func (a *attempt) leave() {
	charges, _ := a.take()
	for _, r := range charges {
		if time.Until(r.Asked.Add(r.Lease)) > grace {
			_ = r.SettleAfter(grace, func(err error) { a.unsettled(r.ID, r.Units, err) }) // false is the same
		}
		a.options.Observer.Settled(r.Receipt, r.Units)
	}
}

// newest is the last charge, finished or not; zero if the request was not charged.
func (a *attempt) newest() budget.Receipt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.receipt
}
