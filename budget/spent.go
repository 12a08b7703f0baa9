package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Spent says who spent how much of a budget, as far back as its ledger reaches.
type Spent struct {
	Budget string
	By     GroupBy
	// At is the store's clock.
	At time.Time
	// From is the start of the requested span; zero: all that the ledger holds.
	From time.Time
	// Since is set if the ledger has forgotten a part of the span: charges that finished
	// up to Since are missing.
	Since time.Time
	// Rows are ordered by units, the greatest first, then by name.
	Rows []SpentRow
	// Total is their sum; its name is empty.
	Total SpentRow
}

// Spent sums what the budget's ledger holds of the last span, or all of it if span is 0,
// by operation, job, region or run. It spends nothing.
func (b *Budget) Spent(ctx context.Context, by GroupBy, span time.Duration) (Spent, error) {
	return b.spent(ctx, "", by, span)
}

// RunSpent is [Budget.Spent], by operation, of the charges that have one run's label. It
// lacks charges whose run the ledger has given up, as it does after an hour where its
// longer windows are all coarse.
func (b *Budget) RunSpent(ctx context.Context, run string, span time.Duration) (Spent, error) {
	if run == "" {
		return Spent{}, fmt.Errorf("ledger of %s: %w: a run has a name", b.spec.Name, ErrInvalid)
	}
	return b.spent(ctx, run, ByOperation, span)
}

// spent is Spent, of one run unless that is empty.
func (b *Budget) spent(ctx context.Context, run string, by GroupBy, span time.Duration) (Spent, error) {
	if !slices.Contains([]GroupBy{ByOperation, ByJob, ByRegion, ByRun}, by) || span < 0 || span > 0 && span < time.Microsecond {
		return Spent{}, fmt.Errorf("ledger of %s: %w: by %q over %s: group by operation, job, region or run, over 0 or 1µs and more", b.spec.Name, ErrInvalid, by, span)
	}
	view, err := b.store.Spent(ctx, driver.SpentQuery{Budget: b.spec.Name, Now: b.now().UnixMicro(), Span: span.Microseconds(), By: by, Run: run})
	if err != nil {
		return Spent{}, fmt.Errorf("ledger of %s: %w", b.spec.Name, outOfReach(ctx, err))
	}
	spent := Spent{Budget: b.spec.Name, By: by, At: time.UnixMicro(view.Now).UTC(), Rows: view.Rows}
	if span > 0 {
		spent.From = spent.At.Add(-span)
	}
	if view.Since > 0 && !time.UnixMicro(view.Since).Before(spent.From) {
		spent.Since = time.UnixMicro(view.Since).UTC()
	}
	slices.SortFunc(spent.Rows, func(a, b SpentRow) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Name, b.Name))
	})
	for _, row := range spent.Rows {
		spent.Total.Units += row.Units
		spent.Total.Calls += row.Calls
		spent.Total.Open += row.Open
		spent.Total.Observed += row.Observed
	}
	return spent, nil
}
