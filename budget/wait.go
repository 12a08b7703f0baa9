package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// A waiter sleeps a random span past the instant its call fits, so that the processes
// that wait for one window do not all ask at the same moment. The span is at most
// waitJitter, and at most 1/waitPart of the limit's window, because units not taken in
// time may be lost.
const (
	waitJitter = 10 * time.Millisecond
	waitPart   = 16
)

// waitLook is how often a waiter asks again whether its call fits earlier than the last
// answer said: another process may have finished a reservation before its lease's end,
// or a person may have ended a lock. Changes by this process wake it at once.
const waitLook = 10 * time.Second

// Wait charges the call as soon as its units fit. Waiters of one process, and with
// [Spec.WaitDir] of one host, are served first in, first out: no call overtakes one that waits
// for a limit they share; a call that waits for a limit of its own holds up no other, nor does one with
// a floor hold up calls with a lower one, or one that may not use the headroom those that may. Those of
// several hosts meet at the instant, spread over some milliseconds.
//
// Wait fails at once if the context's deadline comes before the units can fit, even if
// all open reservations were finished now ([Budget.Soonest]); the error is a
// [*RefusedError] that also is context.DeadlineExceeded. If no wait helps, it fails at
// once with the plain refusal. [Call.MaxWait] says what else bounds the wait.
func (b *Budget) Wait(ctx context.Context, call Call) (Receipt, error) {
	receipt, _, err := b.wait(ctx, call, 0)
	return b.tallied(b.observing(receipt, err))
}

// WaitReserve waits like Wait, and reserves instead of charging. Use it to wait for a
// limit on open reservations.
func (b *Budget) WaitReserve(ctx context.Context, call Call, lease time.Duration) (*Reservation, error) {
	return b.reserve(ctx, call, lease, b.wait)
}

// wait charges a call, or reserves it for a lease in µs. asked is when it asked the
// store for the last answer.
func (b *Budget) wait(ctx context.Context, call Call, lease int64) (receipt Receipt, asked time.Time, err error) {
	call = b.inRun(ctx, call)
	call.fillID() // one id for all tries: at most one of them is charged
	units, err := b.check(call)
	if err != nil {
		return Receipt{}, asked, err
	}
	b.auto.ready(ctx) // an unknown headroom is the most
	limits := b.checking(driver.Item{Operation: call.Operation, Lease: lease})
	chargeNow := func() (Receipt, time.Time, error) {
		asked := time.Now()
		receipt, err := b.charge(ctx, call, lease)
		return receipt, asked, err
	}
	if refused := b.neverFits(call, units, limits); refused != nil && call.NewID {
		return Receipt{}, asked, refused
	} else if refused != nil { // the id may have been charged under other limits
		return chargeNow()
	}
	patience, cancel := b.patience(ctx, call)
	defer cancel()
	if patience.Err() != nil && ctx.Err() == nil { // max_wait is 0: do not wait
		return chargeNow()
	}
	place := &place{item: b.item(call, units, lease)}
	place.item.NewID = false // it is about to sleep, and so needs the store's own answer
	place.until, _ = ctx.Deadline()
	place.deadline, _ = patience.Deadline()
	b.waits.enter(place, partNames(limits, call.Labels.Job))
	defer func() {
		if held := b.waits.leave(place, receipt.seen); held != nil && err == nil {
			b.waited(held, place.item)
		}
	}()
	for {
		turn := b.waits.turn(patience, place)
		if turn.err != nil && ctx.Err() == nil && turn.ahead == nil { // it waited for its turn alone
			return chargeNow()
		} else if turn.err != nil {
			return Receipt{}, asked, b.waitEnded(call, units, turn.ahead, turn.err)
		}
		asked = turn.asked
		if turn.seat != nil {
			done, failed := decidedBy(b.batcher.await(ctx, *turn.seat))
			receipt, err = b.answer(ctx, call, units, done, failed)
		} else {
			receipt, err = b.tryWaiting(ctx, patience, call, lease)
		}
		var refused *RefusedError
		if err == nil || !errors.Is(err, ErrExhausted) || !errors.As(err, &refused) {
			return receipt, asked, err
		}
		jitter, again := b.jitter(refused)
		soonest := b.Soonest(refused)
		if endsBefore(patience, soonest) {
			refused.Cause = waitTooLong{}
			return Receipt{}, asked, refused
		} else if deadline, ok := patience.Deadline(); ok {
			jitter = max(0, min(jitter, time.Until(deadline)-soonest))
			again = min(again, jitter)
		}
		if !b.waits.sleeps(place, refused, b.bindingPart(refused, call.Labels.Job), soonest) {
			continue
		}
		look := min(refused.RetryAfter+jitter, waitLook)
		if b.waits.host != nil && soonest < refused.RetryAfter { // it asks for all that wait behind it
			look = min(look, recoveryLook)
		}
		if errors.Is(refused, ErrRecovering) { // its end wakes no waiter
			look = min(look, soonest+jitter)
		}
		if err := sleepUntil(patience, look, turn.sooner, min(again, refused.RetryAfter)); err != nil {
			refused.Cause = err
			return Receipt{}, asked, refused
		}
		b.waits.wakes(place)
	}
}

// tryWaiting charges the call of a waiter. A refusal that is remembered will do only if the
// wait ends with it: before a sleep, the store says how long.
func (b *Budget) tryWaiting(ctx, patience context.Context, call Call, lease int64) (Receipt, error) {
	receipt, err := b.charge(ctx, call, lease)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Remembered && !endsBefore(patience, b.Soonest(refused)) {
		call.exact = true
		receipt, err = b.charge(ctx, call, lease)
	}
	return receipt, err
}

// endsBefore reports whether a context has a deadline that is less than d away.
func endsBefore(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && d > time.Until(deadline)
}

// jitter is how long a waiter sleeps past the instant its call fits (late), and how long
// it waits after this process finished something (again). again is 0 for a limit on open
// reservations, because only the first in line asks for a free place.
func (b *Budget) jitter(refused *RefusedError) (late, again time.Duration) {
	most := waitJitter
	l, known := b.limitNamed(refused.Limit)
	if known && l.Window.Kind != limit.Concurrent {
		most = min(most, max(1, time.Duration(l.Longest())*time.Microsecond/waitPart))
	}
	late = rand.N(most) //nolint:gosec // spreading, not secrecy
	if known && l.Window.Kind == limit.Concurrent {
		return late, 0
	}
	return late, late
}

// askTogether queues the calls of several waiters to be decided in one step, in their
// order.
func (b *Budget) askTogether(group []*place) []chargeSeat {
	list := make([]joining[driver.Item], len(group))
	for i, p := range group {
		list[i] = joining[driver.Item]{p.item, p.until}
	}
	return b.batcher.join(list)
}

// partNames names what the waiters of a job's calls wait for: limits, and of a divided limit
// the job's share, or what is nobody's. So a share does not wait behind others for what it is
// guaranteed.
func partNames(limits []limit.Limit, job string) []string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = partName(l, job)
	}
	return names
}

func partName(l limit.Limit, job string) string {
	if len(l.Shares) == 0 {
		return l.Name
	}
	if i := l.ShareOf(job); i >= 0 {
		return l.Name + "/" + l.Shares[i].Name
	}
	return l.Name + "/"
}

// patience is the context that bounds a call's wait for units. The caller's context
// bounds the store's decision.
func (b *Budget) patience(ctx context.Context, call Call) (context.Context, context.CancelFunc) {
	longest, said := call.MaxWait, call.MaxWait > 0
	if _, bounded := ctx.Deadline(); !bounded && !said {
		longest, said = b.spec.MaxWait(call.Labels)
	}
	if said {
		return context.WithTimeout(ctx, longest)
	}
	return ctx, func() {}
}

// recoveryLook is the longest interval at which a waiter asks whether a loss, or a pass with
// its hold, still holds charges back.
const recoveryLook = 2 * time.Second

// Soonest is the shortest wait after which a refused call may fit: RetryAfter, or less
// if an open reservation may be finished before its lease ends, if a pass may give back what
// it holds, or if hosts have yet to report a loss.
func (b *Budget) Soonest(refused *RefusedError) time.Duration {
	if errors.Is(refused, ErrRecovering) { // the other hosts may report at any time
		return min(refused.RetryAfter, recoveryLook)
	}
	l, known := b.limitNamed(refused.Limit)
	if !known || l.Window.Kind == limit.Bucket || refused.RetryAt.IsZero() || errors.Is(refused, ErrLocked) {
		return refused.RetryAfter
	}
	byPlan := len(refused.Kept) > 0 && l.ByPlan() // a daemon may find less needed at any time
	if refused.Held > 0 || byPlan {               // as a pass may give back what it holds
		return min(refused.RetryAfter, recoveryLook)
	}
	now := refused.RetryAt.Add(-refused.RetryAfter).UnixMicro()
	at := l.Window.Returns(now)
	var waits []limit.Wait // then guarantees that have lapsed may be back
	for _, other := range b.Limits(refused.Operation) {
		if len(other.Lapses()) > 0 && !other.Observe {
			waits = append(waits, other.Idle(other.Amount(refused.Units), other.ShareOf(refused.job), now))
		}
	}
	if at = limit.FitsTogether(waits, at); at-now > refused.RetryAfter.Microseconds() {
		return refused.RetryAfter
	}
	return time.Duration(at-now) * time.Microsecond
}

// sleepUntil sleeps for d, or for little after sooner is closed. The error is the
// context's.
func sleepUntil(ctx context.Context, d time.Duration, sooner <-chan struct{}, little time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-sooner:
			sooner = nil
			timer.Reset(little)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitTooLong is the cause when a call would have to wait past its deadline. It wraps
// context.DeadlineExceeded.
type waitTooLong struct{}

func (waitTooLong) Error() string { return "the deadline comes before the units are free" }

func (waitTooLong) Unwrap() error { return context.DeadlineExceeded }

// checking lists the limits that an item is checked against.
func (b *Budget) checking(item driver.Item) []limit.Limit {
	return slices.DeleteFunc(b.Limits(item.Operation), func(l limit.Limit) bool { return !item.CheckedBy(l) })
}

// neverFits refuses a call that is larger than a limit allows, so that no wait helps;
// nil if it is not.
func (b *Budget) neverFits(call Call, units int64, limits []limit.Limit) *RefusedError {
	floor, _ := b.spec.floor(call)
	if call.Fence > 0 { // what it draws from its pass's hold has none
		floor = 0
	}
	for _, l := range limits {
		if !l.Observe && l.Amount(units) > l.Bound(floor, call.UseHeadroom) {
			refused := b.refuse(call, units, ErrNeverFits, nil)
			refused.Limit = l.Name
			b.nameFloor(refused, call, l)
			refused.NotCharged = call.NewID
			return refused
		}
	}
	return nil
}

// waitEnded is the error of a waiter that never got its turn: the refusal of the waiter
// that it waits behind if that is known, otherwise the context's error.
func (b *Budget) waitEnded(call Call, units int64, ahead *sleep, err error) error {
	if ahead == nil {
		err = fmt.Errorf("wait for %s %s: %w; it was not sent to the store", b.spec.Name, call.Operation, err)
		if call.NewID {
			err = uncharged{err}
		}
		return err
	}
	refused := b.refuse(call, units, ErrExhausted, fmt.Errorf("calls ahead of it wait that long: %w", err))
	refused.NotCharged = call.NewID
	left := time.Until(ahead.until)
	refused.RetryAt, refused.RetryAfter = ahead.refused.RetryAt, max(time.Microsecond, left)
	if left <= 0 { // what refused that one may be over
		refused.Cause = fmt.Errorf("a call ahead of it is due and was not served yet: %w", err)
		return refused
	}
	refused.Limit, refused.Remaining = ahead.refused.Limit, ahead.refused.Remaining
	refused.Err, refused.Why = ahead.refused.Err, ahead.refused.Why
	return refused
}
