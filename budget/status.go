package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/rate"
)

// Status is what a budget has left.
type Status struct {
	Budget string
	// At is the store's clock.
	At time.Time
	// Observe: the budget's upstream is in observe mode, so that also a lock refuses nothing.
	Observe bool
	// Remaining is the least that any limit has left which counts units, covers every
	// operation and is not in observe mode; nil if the budget has no such limit. It may be
	// another limit than [Status.Tightest].
	Remaining *int64
	Limits    []LimitStatus
	// Locks are the locks that hold, in the order of their limits' names; the lock of the
	// whole budget, with an empty name, comes first.
	Locks []Lock
	// Recovering is set after a loss of the store's data: until then a host may spend
	// only its own part. Zero: no loss holds charges back.
	Recovering time.Time
	// Holds is how many holds live, whatever they have left.
	Holds int
	// OtherShares are the hosts whose shares differ from this budget's, the latest last.
	OtherShares []OtherShares
	// Entries is how many entries the ledger holds, also those that no limit counts any more.
	Entries int64
	// Denied is what was refused in the last day. Only [Budget.Rated] sets it.
	Denied Denied
}

// LockOf returns the lock on a limit, or on the whole budget for an empty name; false
// if there is none.
func (s Status) LockOf(limit string) (Lock, bool) {
	for _, l := range s.Locks {
		if l.Limit == limit {
			return l, true
		}
	}
	return Lock{}, false
}

// LimitStatus is what one limit has used and left, in what it counts.
type LimitStatus struct {
	limit.Limit
	Used int64
	// Held is what passes hold of the limit and have not spent.
	Held      []Held
	Remaining int64 // the limit less what is used and held, 0 or more
	// Over is the debt: how much more than the limit is used, 0 or more.
	Over int64
	// Recovered is how much of Used was recorded to make up for data that the store lost.
	Recovered int64
	// Drift is how much of Used the upstream reported and no charge explains.
	Drift int64
	// Since is set if the ledger does not know the whole window: it knows it from Since
	// on.
	Since time.Time
	// NextReturn is the first instant at which a part of Used returns, and NextAmount is
	// how much; both are zero if nothing is used.
	NextReturn time.Time
	NextAmount int64
	// Shares are the limit's shares, in the order of its own.
	Shares []ShareStatus
	// Parts is what the headroom is made of, if that is automatic; else nil.
	Parts *headroom.Parts
	// Rate is how fast the limit is spent. Only [Budget.Rated] sets it, unless too little was
	// charged lately; else nil.
	Rate *rate.Rate
}

// ShareStatus is what one share of a limit has used, in what the limit counts.
type ShareStatus struct {
	limit.Share
	// InForce is what the share is guaranteed now: its guarantee, less if the limit is lower
	// than all guarantees, 0 if it has lapsed. A guarantee that lapses by plan is no more than
	// what the jobs have used and may still need.
	InForce int64
	Used    int64
	// Kept is what is guaranteed now and not used: no other caller may take it.
	Kept int64
	// Borrowed is what the share has used beyond what it is guaranteed now.
	Borrowed int64
	// LapsesAt is when the guarantee lapses, or has lapsed, in the present period; zero if it
	// does not.
	LapsesAt time.Time
}

// shareStatus is what each share of a limit has used, and what its jobs hold.
func shareStatus(l limit.Limit, used, held []int64, at int64) []ShareStatus {
	list := make([]ShareStatus, len(l.Shares))
	for i, guarantee := range l.InForce(at) {
		list[i] = ShareStatus{Share: l.Shares[i], InForce: guarantee, Used: used[i], Kept: max(0, guarantee-used[i]-held[i]), Borrowed: max(0, used[i]-guarantee)}
		if lapses, ok := l.LapsesAt(i, at); ok {
			list[i].LapsesAt = time.UnixMicro(lapses).UTC()
		}
	}
	return list
}

// keptOf names what a limit keeps for its shares.
func keptOf(l limit.Limit, kept []int64) (list []Kept) {
	for i, units := range kept {
		if units > 0 && i < len(l.Shares) {
			list = append(list, Kept{l.Shares[i].Name, units})
		}
	}
	return list
}

// nameGuarantees has the refusal of a call that never fits say what its limit guarantees to
// other shares, if units and floor alone would fit.
func (b *Budget) nameGuarantees(refused *RefusedError, call Call) {
	refused.Kept = nil
	l, known := b.limitNamed(refused.Limit)
	if !known || l.Amount(refused.Units) > l.Bound(refused.Floor, call.UseHeadroom) {
		return
	}
	if !l.NeverFits(l.Amount(refused.Units), refused.Floor, call.UseHeadroom, l.ShareOf(call.Labels.Job), 0) {
		refused.Apart = true
		return
	}
	kept := l.Guarantees()
	if own := l.ShareOf(call.Labels.Job); own >= 0 {
		kept[own] = 0
	}
	refused.Kept = keptOf(l, kept)
}

// Status reports what is left, without spending.
func (b *Budget) Status(ctx context.Context) (Status, error) {
	status, _, err := b.look(ctx)
	return status, err
}

// look is Status, with what the store answered.
func (b *Budget) look(ctx context.Context) (Status, driver.View, error) {
	b.auto.ready(ctx)
	limits := b.limits(slices.Sorted(maps.Keys(b.spec.Costs)))
	view, err := ask(ctx, b, b.store.Look, driver.Look{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: limits})
	if err != nil {
		return Status{}, view, fmt.Errorf("status of %s: %w", b.spec.Name, err)
	}
	limits = view.Plans.Of(limits)
	status := Status{Budget: b.spec.Name, At: time.UnixMicro(view.Now).UTC(), Observe: b.spec.Observe, Holds: len(view.Holds), Entries: view.Entries}
	status.OtherShares = others(view.Tables, b.table.Digest)
	if view.Recovering > 0 {
		status.Recovering = time.UnixMicro(view.Recovering).UTC()
	}
	for i, l := range limits {
		seen := view.Limits[i]
		list, byShare, held := heldOf(l, view.Holds)
		var parts *headroom.Parts
		if l.Auto > 0 {
			now := b.auto.parts(l)
			l, parts = l.WithHeadroom(now.Units()), &now
		}
		ls := LimitStatus{
			Limit: l, Parts: parts, Used: seen.Used, Held: list, Remaining: l.Remaining(seen.Used + held), Over: max(0, seen.Used-l.Limit),
			NextAmount: seen.NextAmount, Recovered: seen.Recovered, Drift: seen.Drift,
		}
		if len(seen.Shares) == len(l.Shares) && len(l.Shares) > 0 {
			ls.Shares = shareStatus(l, seen.Shares, byShare, view.Now)
		}
		if seen.Since > 0 {
			ls.Since = time.UnixMicro(seen.Since).UTC()
		}
		if seen.NextAt > 0 {
			ls.NextReturn = time.UnixMicro(seen.NextAt).UTC()
		}
		status.Limits = append(status.Limits, ls)
		if whole := l.Counts != limit.CountCalls && l.CoversAll() && !l.Observe; whole && (status.Remaining == nil || ls.Remaining < *status.Remaining) {
			status.Remaining = &ls.Remaining
		}
	}
	for _, l := range view.Locks {
		if driver.IsFence(l.Limit) {
			continue
		}
		status.Locks = append(status.Locks, Lock{Limit: l.Limit, Until: time.UnixMicro(l.Until).UTC(), Since: time.UnixMicro(l.Since).UTC(), Why: l.Why})
	}
	return status, view, nil
}
