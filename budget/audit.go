package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// audits is how often sums are taken again when they differ: others charge
// meanwhile.
const audits = 5

// Audit holds the running totals of the budget's rolling limits against the sum
// of the ledger's entries, and tells the first that differs.
func (b *Budget) Audit(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: "totals of " + b.spec.Name, Level: driver.OK}
	for range audits {
		checked, wrong, err := b.audit(ctx)
		switch {
		case err != nil:
			f.Level, f.Says = driver.Fault, err.Error()
			return f
		case wrong == "":
			f.Level, f.Says, f.Advice = driver.OK, fmt.Sprintf("each of the %d running totals is the sum of its charges", checked), ""
			return f
		}
		f.Level, f.Says, f.Advice = driver.Fault, wrong, "tell its makers, and forget the ledger once its longest window has passed: quotactl reset "+b.spec.Name+" --yes"
	}
	return f
}

// audit is one try.
func (b *Budget) audit(ctx context.Context) (checked int, wrong string, err error) {
	limits := b.limits(slices.Sorted(maps.Keys(b.spec.Costs)))
	bounded, cancel := context.WithTimeoutCause(ctx, b.spec.Timeout, errTimeout)
	view, err := b.store.Look(bounded, driver.Look{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: limits})
	cancel()
	if err != nil {
		return 0, "", fmt.Errorf("audit %s: %w", b.spec.Name, err)
	}
	for i, l := range limits {
		if l.Window.Kind != limit.Rolling || l.Window.Precision > 0 {
			continue // a slot, a period and a meter are no span of time
		}
		// However long that takes: it is no decision, and delays none.
		spent, err := b.store.Spent(ctx, driver.SpentQuery{Budget: b.spec.Name, Now: b.now().UnixMicro(), Span: l.Window.Length, By: ByOperation})
		if err != nil {
			return 0, "", fmt.Errorf("audit %s: %w", b.spec.Name, err)
		}
		sum := int64(0)
		for _, row := range spent.Rows {
			switch {
			case !l.Covers(row.Name):
			case l.Counts == limit.CountCalls:
				sum += row.Calls
			default:
				sum += row.Units
			}
		}
		if checked++; sum != view.Limits[i].Used {
			return checked, fmt.Sprintf("limit %s has a total of %d, its charges sum up to %d", l.Name, view.Limits[i].Used, sum), nil
		}
	}
	return checked, "", nil
}
