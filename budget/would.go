package budget

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Would reports whether a call would be charged now, without charging it. It returns the
// receipt or the refusal that Charge would return at that instant; another process may be
// faster. It does not check whether the call's id was charged before. With a lease above
// 0 the call is a reservation.
func (b *Budget) Would(ctx context.Context, call Call, lease time.Duration) (Receipt, error) {
	return b.observing(b.would(ctx, call, lease))
}

func (b *Budget) would(ctx context.Context, call Call, lease time.Duration) (Receipt, error) {
	call.fillID()
	units, err := b.check(call)
	if err != nil {
		return Receipt{}, err
	}
	floor, _ := b.spec.floor(call)
	item := driver.Item{
		ID: call.ID, Operation: call.Operation, Units: units, Lease: lease.Microseconds(), Floor: floor,
		UseHeadroom: call.UseHeadroom, Labels: call.Labels, Fence: driver.FenceName(call.Labels.Job, call.Fence), DryRun: true, OnStoreError: b.spec.policy(call),
	}
	decisions, limits, err := b.decideBatch(ctx, []driver.Item{item})
	if err != nil {
		return Receipt{}, b.storeError(ctx, call, units, outOfReach(ctx, err))
	}
	done := decided{Decision: decisions.Items[0], storeNow: decisions.Now}
	if at := done.Limit; at >= 0 && at < len(limits) {
		done.limit = limits[at].Name
		if done.Result == driver.Granted {
			done.Remaining -= limits[at].Amount(units)
			done.At = decisions.Now
		}
	}
	return b.receipt(call, units, done)
}
