package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// MayNeed says how much a share's jobs may still need of a limit from now until an instant, in
// what the limit counts, and a digest of the jobs that it counted; false: that is unknown.
type MayNeed func(l limit.Limit, share limit.Share, until time.Time) (amount int64, jobs string, known bool)

// LapsesByPlan reports whether a guarantee of a share lapses by plan.
func (b *Budget) LapsesByPlan() bool { return slices.ContainsFunc(b.spec.Limits, limit.Limit.ByPlan) }

// WritePlan writes beside the ledger, in place of what the writer wrote before, what shares
// whose guarantees lapse by plan may still need. Others may then take what is not needed, for
// as long as lasts (at most 10 minutes), or until the calendar's reset. It does nothing if no
// guarantee lapses by plan. Where another writer counts other jobs, or the need is unknown, the
// guarantee stays whole.
func (b *Budget) WritePlan(ctx context.Context, writer string, lasts time.Duration, need MayNeed) error {
	limits := slices.DeleteFunc(b.limits(slices.Sorted(maps.Keys(b.spec.Costs))), func(l limit.Limit) bool { return !l.ByPlan() })
	if len(limits) == 0 {
		return nil
	}
	// Needs are counted before use is read: what is charged in between is then kept twice, and
	// not left out.
	began := b.now().UnixMicro()
	var shares []driver.PlannedShare
	for _, l := range limits {
		for i, s := range l.Shares {
			if !s.Plan {
				continue
			}
			amount, jobs, known := need(l, s, time.UnixMicro(driver.PlanUntil(l, began)))
			if !known {
				amount = limit.MaxUnits
			}
			shares = append(shares, driver.PlannedShare{Key: l.PlanKey(i), Jobs: jobs, Planned: limit.Planned{Guarantee: min(amount, limit.MaxUnits)}})
		}
	}
	view, err := ask(ctx, b, b.store.Look, driver.Look{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: limits})
	if err != nil {
		return fmt.Errorf("read what shares of %s have used: %w", b.spec.Name, err)
	}
	next := 0
	for at, l := range limits {
		for i, s := range l.Shares {
			if !s.Plan {
				continue
			}
			p := &shares[next]
			next++
			p.Until = view.Now + lasts.Microseconds()
			if l.Window.Kind == limit.CalendarKind {
				p.Until = min(p.Until, driver.PlanUntil(l, view.Now))
			}
			others := slices.ContainsFunc(view.Plans, func(one driver.Plan) bool {
				return one.Key == p.Key && one.Writer != writer && one.Jobs != p.Jobs
			})
			anew := l.Window.Kind == limit.CalendarKind && driver.PlanUntil(l, began) != driver.PlanUntil(l, view.Now) // needs are of another period
			if others || anew {
				p.Guarantee = limit.MaxUnits
			}
			p.Guarantee += min(view.Limits[at].Shares[i], limit.MaxUnits)
		}
	}
	if _, err := apply(ctx, b, driver.PlanChange{Budget: b.spec.Name, Now: b.now().UnixMicro(), Writer: writer, Shares: shares}); err != nil {
		return fmt.Errorf("write what shares of %s may still need: %w", b.spec.Name, err)
	}
	b.waits.free() // less may be kept now
	return nil
}
