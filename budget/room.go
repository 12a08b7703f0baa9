package budget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Needs says how many calls of each operation are about to be made. The empty operation
// means one unit a call; it is checked only against limits that count units and cover
// every operation.
type Needs map[string]int64

// single returns the operation if the need is one call of one operation.
func (n Needs) single() (operation string, ok bool) {
	for operation, calls := range n {
		return operation, len(n) == 1 && calls == 1 && operation != ""
	}
	return "", false
}

// Room checks, without spending, whether all needs would fit now. Of the call it reads
// the labels and the floor, as Charge does: they say which share the calls belong to.
// Nil means yes. Otherwise the error is a [*RefusedError], and its RetryAt is when they fit if
// nothing else happens; if a token bucket has too little for several calls, it is when that
// next has more, so an earlier check is useless.
func (b *Budget) Room(ctx context.Context, needs Needs, as Call) error {
	as = b.inRun(ctx, as)
	if operation, one := needs.single(); one {
		_, err := b.Would(ctx, Call{Operation: operation, Floor: as.Floor, Labels: as.Labels}, 0)
		return err
	}
	as = Call{Floor: as.Floor, Labels: as.Labels}
	err := b.room(ctx, needs, as, 0)
	if refused := new(RefusedError); errors.As(err, &refused) && errors.Is(err, ErrExhausted) {
		b.nameInstant(ctx, refused, needs, as)
	}
	_, err = b.observing(Receipt{}, err)
	return err
}

// RoomBeside is Room for the run of a pass that holds its needs, and may take span: it asks
// only the limits that count no such hold, and the store only if there are any.
func (b *Budget) RoomBeside(ctx context.Context, needs Needs, as Call, span time.Duration) error {
	if !slices.ContainsFunc(b.spec.Limits, func(l limit.Limit) bool { return !driver.CountsHold(l, span.Microseconds()) }) {
		return nil
	}
	_, err := b.observing(Receipt{}, b.room(ctx, needs, Call{Floor: as.Floor, Labels: as.Labels}, span))
	return err
}

// nameInstant says when all needs fit the limits that a hold of them would be checked by.
func (b *Budget) nameInstant(ctx context.Context, refused *RefusedError, needs Needs, as Call) {
	var list []Need
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		units, err := b.spec.price(Call{Operation: name})
		if err != nil { // one unit of no operation
			return
		}
		list = append(list, Need{Operation: name, Units: units * needs[name], Calls: needs[name]}) // room has checked that it is no more than MaxUnits
	}
	exact := new(RefusedError)
	if err := b.WouldHold(ctx, as, list, 0, time.Microsecond); errors.As(err, &exact) && errors.Is(err, ErrExhausted) && !exact.RetryAt.IsZero() {
		refused.RetryAt, refused.RetryAfter = exact.RetryAt, exact.RetryAfter
	}
}

// room is Room for several calls, without the limits that count a hold of a pass that may take
// span, unless that is 0.
func (b *Budget) room(ctx context.Context, needs Needs, as Call, span time.Duration) error {
	floor, _ := b.spec.floor(as)
	status, err := b.Status(ctx)
	if err != nil {
		return b.storeError(ctx, Call{}, 0, err)
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if name == "" {
			continue
		}
		if _, err := b.check(Call{Operation: name}); err != nil {
			return err
		}
	}
	if refused := b.lockedOut(status, needs); refused != nil {
		return refused
	}
	if !status.Recovering.IsZero() && !b.spec.Observe {
		refused := b.refuse(Call{}, 0, ErrRecovering, nil)
		refused.RetryAt, refused.RetryAfter = status.Recovering, status.Recovering.Sub(status.At)
		return refused
	}
	for _, l := range status.Limits {
		if l.Observe || l.Window.Kind == limit.Concurrent || span > 0 && driver.CountsHold(l.Limit, span.Microseconds()) { // plain charges do not count in it
			continue
		}
		amount, last, err := b.needed(l.Limit, needs)
		if err != nil {
			return err
		}
		own, kept := l.ShareOf(as.Labels.Job), []Kept(nil)
		bound, available := l.Bound(floor, false), l.Bound(0, false)
		for i, s := range l.Shares {
			if i != own && s.Kept > 0 {
				kept = append(kept, Kept{s.Name, s.Kept})
				available -= s.Kept
			}
		}
		held := l.held()
		if amount == 0 || l.Used+held <= min(bound, available)-amount {
			continue
		}
		refused := b.refuse(Call{Operation: last}, amount, ErrExhausted, nil)
		refused.Limit, refused.Remaining = l.Name, l.Remaining
		refused.Kept, refused.Held = kept, held
		b.nameFloor(refused, as, l.Limit)
		if l.NeverFits(amount, floor, false, own, 0) {
			refused.Err = ErrNeverFits
			b.nameGuarantees(refused, as)
		} else if at := l.nextBack(); !at.IsZero() {
			refused.RetryAt, refused.RetryAfter = at, at.Sub(status.At)
		}
		return refused
	}
	return nil
}

// nextBack is when the next charge returns or the next hold ends; the zero time if there is
// neither.
func (l *LimitStatus) nextBack() time.Time {
	at := l.NextReturn
	for _, h := range l.Held {
		if at.IsZero() || h.Until.Before(at) {
			at = h.Until
		}
	}
	return at
}

// lockedOut is the refusal by the lock that ends last, of those that apply to the needs;
// nil if no lock applies.
func (b *Budget) lockedOut(status Status, needs Needs) *RefusedError {
	var refused *RefusedError
	for _, lock := range status.Locks {
		l, known := b.limitNamed(lock.Limit)
		for name := range needs {
			bears := known && !l.Observe && (name != "" && l.Covers(name) || name == "" && l.CoversAll() && l.Counts != limit.CountCalls)
			if lock.Limit == "" {
				bears = !b.spec.Observe
			}
			if bears && (refused == nil || lock.Until.After(refused.RetryAt)) {
				refused = b.refuse(Call{Operation: name}, 0, ErrLocked, nil)
				refused.Limit, refused.Why, refused.RetryAt, refused.RetryAfter = lock.Limit, lock.Why, lock.Until, lock.Until.Sub(status.At)
			}
		}
	}
	return refused
}

// needed is what a limit would count for all needs, and one of the operations that it
// counts, to name in the refusal.
func (b *Budget) needed(l limit.Limit, needs Needs) (amount int64, operation string, err error) {
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		calls := needs[name]
		var units int64
		switch {
		case name == "" && (l.Counts == limit.CountCalls || !l.CoversAll()):
			continue
		case name == "":
			units = 1
		case !l.Covers(name):
			continue
		default:
			units, _ = b.spec.price(Call{Operation: name}) // checked
		}
		each := l.Amount(units)
		if calls < 0 || each > 0 && calls > (limit.MaxUnits-amount)/each {
			return 0, "", b.refuse(Call{Operation: name}, units, ErrTooManyUnits, fmt.Errorf("%d calls: use 0 to %d units in all", calls, limit.MaxUnits))
		}
		amount += calls * each
		operation = name
	}
	return amount, operation, nil
}
