package budget

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// JobHistory is [Budget.History] of the charges that have one job's label, by hour, day,
// operation or region. Drift and recovered units are nobody's, so they are not in it.
func (b *Budget) JobHistory(ctx context.Context, job string, by GroupBy, span time.Duration, zone *time.Location) (History, error) {
	if !slices.Contains([]GroupBy{ByHour, ByDay, ByOperation, ByRegion}, by) || span < time.Microsecond || zone == nil || !driver.ValidName(job) {
		return History{}, fmt.Errorf("history of %s: %w: of job %q by %q over %s: name a job, and group by hour, day, operation or region, over 1µs or more, in a zone", b.spec.Name, ErrInvalid, job, by, span)
	}
	now := b.now().UnixMicro()
	query := driver.HistoryQuery{
		Budget: b.spec.Name, Now: now, Since: driver.HourOf(max(0, now-span.Microseconds())),
		Hours: by == ByHour || by == ByDay, Operations: by == ByOperation, Jobs: true, Regions: by == ByRegion,
	}
	view, err := ask(ctx, b, b.store.History, query)
	if err != nil {
		return History{}, fmt.Errorf("history of %s: %w", b.spec.Name, err)
	}
	h := History{Budget: b.spec.Name, By: by, At: time.UnixMicro(view.Now).UTC(), From: time.UnixMicro(query.Since).UTC()}
	if view.Since > query.Since {
		h.Since = time.UnixMicro(view.Since).UTC()
	}
	groups := map[string]HistoryRow{}
	for _, row := range view.Rows {
		if row.Job != job || row.Pseudo() {
			continue
		}
		addHistory(groups, groupName(by, row, zone), row)
		h.Total.Units += row.Units
		h.Total.Calls += row.Calls
	}
	h.Rows = historyRows(groups, query.Hours)
	return h, nil
}
