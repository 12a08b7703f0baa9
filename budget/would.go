package budget

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Would reports whether a call would be charged now, without charging it. It returns the
// receipt or the refusal that Charge would return at that instant; another process may be
// faster. It does not check whether the call's id was charged before. With a lease above
// 0 the call is a reservation.
func (b *Budget) Would(ctx context.Context, call Call, lease time.Duration) (Receipt, error) {
	return b.observing(b.would(ctx, call, lease))
}

func (b *Budget) would(ctx context.Context, call Call, lease time.Duration) (Receipt, error) {
	receipt, _, _, err := b.dryRun(ctx, call, lease)
	return receipt, err
}

// dryRun is would with all that the store answered, and the limits that this is about.
func (b *Budget) dryRun(ctx context.Context, call Call, lease time.Duration) (Receipt, driver.Decisions, []limit.Limit, error) {
	call = b.inRun(ctx, call)
	call.fillID()
	units, err := b.check(call)
	if err != nil {
		return Receipt{}, driver.Decisions{}, nil, err
	}
	floor, _ := b.spec.floor(call)
	item := driver.Item{
		ID: call.ID, Operation: call.Operation, Units: units, Lease: lease.Microseconds(), Floor: floor,
		UseHeadroom: call.UseHeadroom, Labels: call.Labels, Fence: driver.FenceName(call.Labels.Job, call.Fence), DryRun: true, OnStoreError: b.spec.policy(call),
	}
	bounded, cancel := context.WithTimeoutCause(ctx, b.spec.Timeout, errTimeout)
	defer cancel()
	v, err := b.decideBatch(bounded, []driver.Item{item})
	decisions, limits := v.Decisions, v.limits
	if err != nil {
		return Receipt{}, decisions, limits, b.storeError(ctx, call, units, outOfReach(ctx, err))
	}
	done := decided{Decision: &decisions.Items[0], storeNow: decisions.Now}
	if at := done.Limit; at >= 0 && at < len(limits) {
		done.limit = limits[at].Name
		if at < len(decisions.Used) {
			done.held = heldBeside(limits[at], decisions.Used[at], done.Remaining)
		}
		if done.Result == driver.Granted {
			done.Remaining = max(0, done.Remaining-limits[at].Amount(units)) // less than 0 where it only observes
			done.At = decisions.Now
		}
	}
	receipt, err := b.receipt(call, units, done)
	return receipt, decisions, limits, err
}
