package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// audits is how many times Audit compares before it reports a difference, since others
// may charge between its two reads.
const audits = 5

// Audit compares the running totals of the budget's rolling limits with the sums of
// the ledger's entries, and reports the first that differs.
func (b *Budget) Audit(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: "totals of " + b.spec.Name, Level: driver.OK}
	for range audits {
		checked, wrong, err := b.audit(ctx)
		switch {
		case err != nil:
			f.Level, f.Says = driver.Fault, err.Error()
			return f
		case wrong == "":
			f.Level, f.Says, f.Advice = driver.OK, fmt.Sprintf("every running total equals the sum of its charges (checked: %d)", checked), ""
			return f
		}
		f.Level, f.Says, f.Advice = driver.Fault, wrong, "report it as a bug; once the longest window has passed, forget the ledger: quotactl reset "+b.spec.Name+" --yes"
	}
	return f
}

// audit compares once; wrong is the first difference, if any.
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
			continue // Spent sums an exact trailing span only
		}
		// No timeout: this is not a decision, and delays none.
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
			return checked, fmt.Sprintf("limit %s has a running total of %d, but its charges add up to %d", l.Name, view.Limits[i].Used, sum), nil
		}
	}
	return checked, "", nil
}
