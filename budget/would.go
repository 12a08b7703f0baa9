package budget

import (
	"context"
	"errors"
	"time"
)

// Would tells whether a call would be charged now, without charging it: nil, or
// the refusal. That is exact for the instant it was looked at; another process
// may be quicker. A refusal's RetryAt is when something next comes back to the
// limit that has to wait longest for that: the call fits then at the earliest.
// Whether the call's id was charged before is not looked at. With a lease above 0
// the call is a reservation.
func (b *Budget) Would(ctx context.Context, call Call, lease time.Duration) (Receipt, error) {
	units, err := b.check(call)
	if err != nil {
		return Receipt{}, err
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, b.spec.Timeout)
	defer cancel()
	limits := b.limits([]string{call.Operation})
	view, err := b.store.Look(ctx, Look{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: limits})
	if err != nil {
		return Receipt{}, b.storeError(caller, call, units, outOfReach(caller, err))
	}
	item := Item{Operation: call.Operation, Units: units, Lease: lease.Microseconds()}
	var refused *RefusedError
	for i, l := range limits {
		if !l.Checks(item) {
			continue
		}
		seen, bound := view.Limits[i], l.Bound(call.Floor, call.UseHeadroom)
		switch amount := l.Amount(units); {
		case amount > bound:
			never := b.refuse(call, units, ErrNeverFits, nil)
			never.Limit, never.Remaining = l.Name, l.Remaining(seen.Used)
			return Receipt{}, never
		case seen.Used+amount <= bound:
			continue
		}
		at := time.UnixMicro(seen.NextAt).UTC()
		if refused == nil || at.After(refused.RetryAt) {
			refused = b.refuse(call, units, ErrExhausted, errors.New("it was only looked at; it fits then at the earliest"))
			refused.Limit, refused.Remaining = l.Name, l.Remaining(seen.Used)
			refused.RetryAt, refused.RetryAfter = at, time.Duration(seen.NextAt-view.Now)*time.Microsecond
		}
	}
	if refused != nil {
		return Receipt{}, refused
	}
	receipt := Receipt{Budget: b.spec.Name, Operation: call.Operation, ID: call.ID, Units: units, At: time.UnixMicro(view.Now).UTC(), Source: SourceStore}
	at, _ := LeastRemaining(limits, item, func(i int) int64 { return view.Limits[i].Used + limits[i].Amount(units) })
	if at >= 0 {
		receipt.Limit, receipt.Remaining = limits[at].Name, limits[at].Remaining(view.Limits[at].Used+limits[at].Amount(units))
	}
	return receipt, nil
}
