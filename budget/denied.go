package budget

import (
	"context"
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

// denied reads the refusals of the last span.
func (b *Budget) denied(ctx context.Context) (Denied, error) {
	now := b.now().UnixMicro()
	past, err := ask(ctx, b, b.store.History, driver.HistoryQuery{
		Budget: b.spec.Name, Now: now, Since: driver.HourOf(max(0, now-deniedSpan.Microseconds())), Jobs: true, Refusals: true, Limits: true,
	})
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
