package budget

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// deniedSpan is how far back [Budget.Rated] looks for refusals.
const deniedSpan = 24 * time.Hour

// Denied are the calls of a span that were refused for good, or had to wait, whichever process
// made them.
type Denied struct {
	Since           time.Time // a whole hour
	Refused, Waited int64
	// Job and Limit are of the most refused calls, Most of them; either may be empty.
	Job, Limit string
	Most       int64
}

// Refusals are the calls of the hours of the last span that were refused for good, or waited,
// by hour, limit, operation and job, whichever process made them. Rows that have none are not
// among them.
func (b *Budget) Refusals(ctx context.Context, span time.Duration) ([]driver.HistoryRow, error) {
	past, err := b.refusals(ctx, span, driver.HistoryQuery{Hours: true, Operations: true, Jobs: true})
	if err != nil {
		return nil, fmt.Errorf("refusals of %s: %w", b.spec.Name, err)
	}
	return slices.DeleteFunc(past.Rows, func(row driver.HistoryRow) bool { return row.Refused == 0 && row.Waited == 0 }), nil
}

// refusals reads the history of the last span with its refusals by limit, and by what else a
// query keeps apart.
func (b *Budget) refusals(ctx context.Context, span time.Duration, query driver.HistoryQuery) (driver.History, error) {
	query.Budget, query.Now, query.Refusals, query.Limits = b.spec.Name, b.now().UnixMicro(), true, true
	query.Since = driver.HourOf(max(0, query.Now-span.Microseconds()))
	return ask(ctx, b, b.store.History, query)
}

// denied sums the refusals of the last span.
func (b *Budget) denied(ctx context.Context) (Denied, error) {
	past, err := b.refusals(ctx, deniedSpan, driver.HistoryQuery{Jobs: true})
	if err != nil {
		return Denied{}, err
	}
	d := Denied{Since: time.UnixMicro(past.Since).UTC()}
	for _, row := range past.Rows {
		d.Refused += row.Refused
		d.Waited += row.Waited
		if row.Refused > d.Most || row.Refused == d.Most && d.Most > 0 && row.Job+"/"+row.Limit < d.Job+"/"+d.Limit {
			d.Job, d.Limit, d.Most = row.Job, row.Limit, row.Refused
		}
	}
	return d, nil
}
