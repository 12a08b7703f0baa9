package budget

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Need is what a pass is expected to take of one operation, in units and calls.
type Need = driver.Need

// Hold keeps what a pass needs until lease ends, or refuses as Charge does. As says whose
// pass it is: its Fence and the label of its job are needed; with a region, only the charges
// of that region draw from it. Charges with the same fence then draw from the hold, in the
// step in which they are recorded. Limits of windows shorter than span, which is how long the
// pass may take, do not count it. Asking again is answered as the first time. A hold is never
// made from a host's allowance: without the store the error is ErrUnavailable.
func (b *Budget) Hold(ctx context.Context, as Call, needs []Need, span, lease time.Duration) (Receipt, error) {
	return b.observing(b.hold(ctx, as, needs, span, lease))
}

func (b *Budget) hold(ctx context.Context, as Call, needs []Need, span, lease time.Duration) (Receipt, error) {
	item, err := b.holdItem(&as, needs, span, lease)
	if err == nil && item.Fence == "" {
		err = fmt.Errorf("hold units of %s: %w: name the pass by the label of its job and its fence", b.spec.Name, ErrInvalid)
	}
	if err != nil {
		return Receipt{}, err
	}
	item.Deadline = b.deadline(ctx)
	done, err := decidedBy(b.batcher.do(ctx, &item))
	return b.answer(ctx, as, item.Units, done, err)
}

// WouldHold reports whether Hold would be granted now, without holding anything: nil, or its
// refusal. As needs no fence.
func (b *Budget) WouldHold(ctx context.Context, as Call, needs []Need, span, lease time.Duration) error {
	item, err := b.holdItem(&as, needs, span, lease)
	if err != nil {
		return err
	}
	item.DryRun = true
	bounded, cancel := context.WithTimeoutCause(ctx, b.spec.Timeout, errTimeout)
	defer cancel()
	v, err := b.decideBatch(bounded, []driver.Item{item})
	done, err := decidedBy(v, 0, err)
	if err != nil {
		err = outOfReach(ctx, err)
	}
	_, err = b.observing(b.answer(ctx, as, item.Units, done, err))
	return err
}

// holdItem is the hold as the store decides it, without the deadline.
func (b *Budget) holdItem(as *Call, needs []Need, span, lease time.Duration) (driver.Item, error) {
	as.fillID()
	as.OnStoreError, as.holds = Closed, true
	var units int64
	for i, n := range needs {
		if slices.ContainsFunc(needs[:i], func(other Need) bool { return other.Operation == n.Operation }) {
			return driver.Item{}, fmt.Errorf("hold units of %s: %w: operation %q comes twice; add up its units and calls", b.spec.Name, ErrInvalid, n.Operation)
		}
		call := *as
		call.Operation, call.Units = n.Operation, &n.Units
		if _, err := b.check(call); err != nil {
			return driver.Item{}, err
		}
		if n.Calls < 0 || n.Calls > limit.MaxUnits || units+n.Units > limit.MaxUnits {
			return driver.Item{}, fmt.Errorf("hold units of %s: %w: %d units and %d calls of %s: use 0 to %d in all", b.spec.Name, ErrInvalid, n.Units, n.Calls, n.Operation, limit.MaxUnits)
		}
		units += n.Units
	}
	if len(needs) == 0 || len(needs) > driver.MaxNeeds || span < 0 || lease < time.Microsecond || lease > MaxLease {
		return driver.Item{}, fmt.Errorf("hold units of %s: %w: %d operations, span %s, lease %s: use 1 to %d operations, and a lease of 1µs to %s", b.spec.Name, ErrInvalid, len(needs), span, lease, driver.MaxNeeds, MaxLease)
	}
	item := b.item(*as, units, lease.Microseconds())
	item.Needs, item.Span = needs, span.Microseconds()
	return item, nil
}

// RenewHolds renews what is held for a pass, so that it ends no earlier than lease from now, and
// returns it; nothing is held any more if its lease had ended, the store has lost it, or the
// pass is fenced off.
func (b *Budget) RenewHolds(ctx context.Context, job string, fence int64, lease time.Duration) ([]driver.Hold, error) {
	change := driver.HoldChange{Budget: b.spec.Name, Now: b.now().UnixMicro(), Fence: driver.FenceName(job, fence), Lease: lease.Microseconds()}
	left, err := apply(ctx, b, change)
	if err != nil {
		return nil, fmt.Errorf("renew what is held in %s for job %s: %w", b.spec.Name, job, err)
	}
	return left.Holds, nil
}

// EndHold gives back what a pass, or with a region that run, has not drawn, and returns it.
func (b *Budget) EndHold(ctx context.Context, job string, fence int64, region string) ([]Need, error) {
	change := driver.HoldChange{Budget: b.spec.Name, Now: b.now().UnixMicro(), Fence: driver.FenceName(job, fence), Region: region}
	ended, err := apply(ctx, b, change)
	if err != nil {
		return nil, fmt.Errorf("give back what is held in %s for job %s: %w", b.spec.Name, job, err)
	}
	b.waits.free()
	if len(ended.Holds) == 0 {
		return nil, nil
	}
	return ended.Holds[0].Left, nil
}

// Held is what a pass holds of a limit, in what the limit counts.
type Held struct {
	Job    string
	Region string // empty: the whole pass
	Amount int64
	Until  time.Time // the end of its lease, unless it is renewed
}

// held is what all passes hold of the limit.
func (l *LimitStatus) held() (sum int64) {
	for _, h := range l.Held {
		sum += h.Amount
	}
	return sum
}

// heldOf lists what is held of a limit, and how much of it by each share's jobs.
func heldOf(l limit.Limit, holds []driver.Hold) (list []Held, byShare []int64, sum int64) {
	byShare = make([]int64, len(l.Shares))
	for i := range holds {
		h := &holds[i]
		amount := h.Amount(l)
		if amount == 0 {
			continue
		}
		list = append(list, Held{Job: h.Job, Region: h.Region, Amount: amount, Until: time.UnixMicro(h.Until).UTC()})
		if own := l.ShareOf(h.Job); own >= 0 {
			byShare[own] += amount
		}
		sum += amount
	}
	return list, byShare, sum
}

// ErrTooManyHolds: the budget's ledger keeps as many holds as it can, 64. Ask again when a pass
// has ended.
var ErrTooManyHolds = fmt.Errorf("%d holds live already: let fewer passes with hold run at once", driver.MaxHolds)
