package budget

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// The keeper is a lease's goroutine. It alone asks the store.

// chore is a charge of the lease that is to be settled, or released because it is unknown
// whether it was made.
type chore struct {
	id      string
	release bool
	taken   int64
}

// endLease is what a chore does, in messages.
const endLease = "end the lease's charge in"

// choreRetry is how long after a failure the chores are tried again.
const choreRetry = time.Second

// open makes the first charge.
func (l *Lease) open(ctx context.Context) error {
	if err := l.look(ctx); err != nil && !l.goesOn() {
		return l.budget.storeError(ctx, l.call, l.units, err)
	}
	return l.charge(ctx, l.units)
}

// goesOn reports whether the lease asks for units though a look failed: they may come from
// the host's allowance, or observe mode lets the calls through.
func (l *Lease) goesOn() bool {
	return l.budget.spec.Observe || l.budget.spec.policy(l.call) == Open
}

func (l *Lease) keep() {
	defer close(l.over)
	ctx := context.Background() // each question to the store has a timeout of its own
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.closing:
			l.end(ctx)
			return
		}
		l.step(ctx)
		timer.Reset(l.pause())
	}
}

// pause is how long nothing is to be done, unless somebody waits.
func (l *Lease) pause() time.Duration {
	next := time.Duration(math.MaxInt64)
	if h := l.held.Load(); h != nil {
		now := time.Now()
		next = h.ends.Sub(now)
		if h.used() && !h.tried {
			next = min(next, h.renewAt().Sub(now))
		}
		switch {
		case h.receipt.Source != SourceStore: // no look tells about it
			next = min(next, leaseFresh-now.Sub(h.base))
		case !h.idle(now):
			next = min(next, l.asked.Add(leaseLook).Sub(now))
		}
	}
	if len(l.chores) > 0 {
		next = min(next, time.Until(l.tidy))
	}
	return max(0, next)
}

// step does what is due.
func (l *Lease) step(ctx context.Context) {
	l.check(ctx)
	l.serve(ctx)
	if h := l.held.Load(); h != nil && !h.tried && h.used() && (h.left.Load() < h.low || !time.Now().Before(h.renewAt())) {
		h.tried = true // a refusal is the takers' business, once there is nothing left
		_ = l.charge(ctx, l.units)
	}
	if len(l.chores) > 0 && !time.Now().Before(l.tidy) {
		_ = l.tidyUp(ctx) // it is tried again
	}
}

// check drops the holding if its time is over or the store says that takes must end.
func (l *Lease) check(ctx context.Context) {
	h := l.held.Load()
	if h == nil {
		return
	}
	now := time.Now()
	due := !now.Before(l.asked.Add(leaseLook)) && !h.idle(now) || !h.fresh(now) && l.waits()
	switch {
	case !now.Before(h.ends), h.receipt.Source != SourceStore && !h.fresh(now):
		l.drop()
	case due && h.receipt.Source == SourceStore:
		_ = l.look(ctx) // without an answer takes end on their own
	}
}

// waits reports whether somebody waits.
func (l *Lease) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.takers) > 0
}

// serve takes for those that wait, or gives them what the store says instead.
func (l *Lease) serve(ctx context.Context) {
	for {
		need, some := l.handOut()
		if !some {
			return
		}
		if err := l.renew(ctx, need); err != nil {
			l.refuse(need, err)
		}
	}
}

// handOut takes for those that wait, first come first served, until there are too few units
// for one: how many that needs.
func (l *Lease) handOut() (need int64, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.takers) > 0 {
		first := l.takers[0]
		h := l.held.Load()
		if h == nil {
			return first.units, true
		}
		if took, _ := h.take(first.units, time.Now()); !took {
			return first.units, true
		}
		l.takers = l.takers[1:]
		first.done <- nil
	}
	return 0, false
}

// refuse gives a refusal to the first that waits, and to all others that need as much.
func (l *Lease) refuse(units int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var others []*taker
	for _, t := range l.takers {
		if t.units == units {
			_, err := l.budget.tallied(Receipt{}, l.refused(units, err))
			t.done <- err
		} else {
			others = append(others, t)
		}
	}
	l.takers = others
}

// renew gets a holding with at least so many units. If the store has too few for a whole
// lease, renew asks for what it says is left, and in the end for no more than is needed, so
// that a refusal is the one that a Charge of these units would get.
func (l *Lease) renew(ctx context.Context, need int64) error {
	if h := l.held.Load(); h != nil && !h.fresh(time.Now()) { // check has asked in vain
		l.drop()
	}
	if len(l.chores) > 0 {
		if err := l.tidyUp(ctx); err != nil {
			return l.unasked(need, err)
		}
	}
	if time.Since(l.looked) >= leaseFresh {
		if err := l.look(ctx); err != nil && !l.goesOn() {
			return err
		}
	}
	for ask := max(l.units, need); ; {
		err := l.charge(ctx, ask)
		if err == nil || ask == need {
			return err
		}
		var refused *RefusedError
		switch {
		case !errors.As(err, &refused):
			return err
		case errors.Is(err, ErrNeverFits), errors.Is(err, ErrTooManyUnits):
			ask = need
		case errors.Is(err, ErrLocked), errors.Is(err, ErrRecovering), !errors.Is(err, ErrExhausted):
			return err
		default:
			if free := refused.free(); free < ask {
				ask = max(need, free)
			} else { // the limit has room for that: what refuses is not said
				ask = need + (ask-need)/2
			}
		}
	}
}

// free is what the limit that refuses would still grant, in what it counts. Its floor and what
// it keeps for others are checked apart, so the greater of them counts.
func (e *RefusedError) free() int64 {
	kept := int64(0)
	for _, k := range e.Kept {
		kept += k.Units
	}
	return e.Remaining - max(e.Floor, kept)
}

// charge makes one charge of the lease, and hands out from it from now on.
func (l *Lease) charge(ctx context.Context, units int64) error {
	b := l.budget
	span := l.beforeReset(ctx)
	call := l.call
	call.Units, call.ID, call.NewID = &units, newID(), true
	asked := time.Now()
	receipt, err := b.charge(ctx, call, span.Microseconds())
	var refused *RefusedError
	if err != nil && (!errors.As(err, &refused) || !refused.NotCharged) {
		l.chores = append(l.chores, chore{id: call.ID, release: true})
	}
	if receipt, err = b.observing(receipt, err); err != nil {
		return err
	}
	l.hold(newHolding(receipt, units, span, asked, l.endOf(receipt, asked, span)))
	if receipt.Source != SourceStore {
		return nil
	}
	l.makeLive(ctx)
	if l.mark.Ledger == "" { // the charge has begun the ledger
		_ = l.look(ctx)
	}
	return nil
}

// unasked is renew while the store is known not to answer: only observe mode lets calls
// through.
func (l *Lease) unasked(need int64, err error) error {
	call := l.call
	call.ID = newID()
	receipt, err := l.budget.observing(Receipt{}, l.budget.storeError(context.Background(), call, need, err))
	if err == nil {
		now := time.Now()
		l.hold(newHolding(receipt, max(l.units, need), l.span, now, now.Add(l.span)))
	}
	return err
}

// hold hands out from a holding from now on.
func (l *Lease) hold(h *holding) {
	l.receipt.Store(&h.receipt)
	if old := l.held.Swap(h); old != nil {
		l.settle(old)
	}
}

// drop ends the holding.
func (l *Lease) drop() {
	if h := l.held.Swap(nil); h != nil {
		l.settle(h)
	}
}

// settle ends the takes from a holding and has it settled.
func (l *Lease) settle(h *holding) {
	if taken := h.close(); h.receipt.Source != SourceNone {
		l.chores = append(l.chores, chore{id: h.receipt.ID, taken: taken})
		l.tidy = time.Time{}
	}
}

// tidyUp does the chores. The error is why one is left.
func (l *Lease) tidyUp(ctx context.Context) error {
	for len(l.chores) > 0 {
		c := l.chores[0]
		finish := driver.Finish{ID: c.id, Units: c.taken, Release: c.release}
		err := l.budget.finish(ctx, endLease, finish)
		if c.release && errors.Is(err, ErrExpired) { // too late to release: but not to settle
			finish.Release = false
			err = l.budget.finish(ctx, endLease, finish)
		}
		if err != nil && !errors.Is(err, ErrExpired) && !errors.Is(err, ErrConflict) {
			l.unsaid, l.tidy = err, time.Now().Add(choreRetry)
			return err
		}
		l.chores = l.chores[1:]
	}
	l.tidy = time.Time{}
	return nil
}

// end ends the lease.
func (l *Lease) end(ctx context.Context) {
	l.mu.Lock()
	for _, t := range l.takers {
		t.done <- l.failed(t.units, ErrClosed)
	}
	l.takers = nil
	l.mu.Unlock()
	l.drop()
	_ = l.tidyUp(ctx) // Close says what is left
}
