package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// What [Budget.History] may be grouped by besides ByOperation, ByJob and ByRegion. By limit are
// only the calls that it refused or had wait, since a charge counts in several.
const (
	ByHour  GroupBy = "hour"
	ByDay   GroupBy = "day"
	ByLimit GroupBy = "limit"
)

// History says what a budget was charged since an hour, however much that was.
type History struct {
	Budget string
	By     GroupBy
	// At is the store's clock.
	At time.Time
	// From is the start of the requested span, rounded down to the hour.
	From time.Time
	// Since is set if the history does not reach back to From: it begins at Since.
	Since time.Time
	// Rows are the hours or days in their order, else the greatest first, then by name.
	Rows []HistoryRow
	// Total is their sum; its name is empty.
	Total HistoryRow
	// Beside is what no call was charged for, by its pseudo-operation: drift/LIMIT and
	// recovered/LIMIT, in what the limit counts. It is in no sum.
	Beside []HistoryRow
}

// HistoryRow is what one group was charged, as settled; what was released is in no number.
type HistoryRow struct {
	// Name is the operation, the job or the region, empty for charges without the label;
	// a day as 2006-01-02, an hour as RFC 3339 has its beginning, in the zone asked for.
	Name  string
	Units int64
	Calls int64
	// Refused are calls that were refused for good, Waited those that were granted after a wait.
	// They have no region.
	Refused, Waited int64
}

// History sums what was charged, and what was refused, in the hours of the last span, by hour, day,
// operation, job, region or limit. The days are those of the zone; an hour belongs to the day in which it begins.
// Its cost grows with what it returns, not with how much was charged. The span is 1 µs or
// more; one that is longer than the history is kept is answered as far as it is kept. It
// spends nothing.
func (b *Budget) History(ctx context.Context, by GroupBy, span time.Duration, zone *time.Location) (History, error) {
	return b.history(ctx, "", by, span, zone)
}

// JobHistory is [Budget.History] of the charges that have one job's label, by hour, day,
// operation, region or limit. Drift and recovered units are nobody's, so they are not in it.
func (b *Budget) JobHistory(ctx context.Context, job string, by GroupBy, span time.Duration, zone *time.Location) (History, error) {
	if by == ByJob || !driver.ValidName(job) {
		return History{}, fmt.Errorf("history of %s: %w: of job %q by %q: name a job, and group by hour, day, operation, region or limit", b.spec.Name, ErrInvalid, job, by)
	}
	return b.history(ctx, job, by, span, zone)
}

// history is History, of one job unless that is empty.
func (b *Budget) history(ctx context.Context, job string, by GroupBy, span time.Duration, zone *time.Location) (History, error) {
	if !slices.Contains([]GroupBy{ByHour, ByDay, ByOperation, ByJob, ByRegion, ByLimit}, by) || span < time.Microsecond || zone == nil {
		return History{}, fmt.Errorf("history of %s: %w: by %q over %s: group by hour, day, operation, job, region or limit, over 1µs or more, in a zone", b.spec.Name, ErrInvalid, by, span)
	}
	now := b.now().UnixMicro()
	query := driver.HistoryQuery{
		Budget: b.spec.Name, Now: now, Since: driver.HourOf(max(0, now-span.Microseconds())),
		Hours: by == ByHour || by == ByDay, Operations: by == ByOperation, Jobs: by == ByJob || job != "", Regions: by == ByRegion,
		Refusals: true, Limits: by == ByLimit,
	}
	view, err := ask(ctx, b, b.store.History, query)
	if err != nil {
		return History{}, fmt.Errorf("history of %s: %w", b.spec.Name, err)
	}
	h := History{Budget: b.spec.Name, By: by, At: time.UnixMicro(view.Now).UTC(), From: time.UnixMicro(query.Since).UTC()}
	if view.Since > query.Since {
		h.Since = time.UnixMicro(view.Since).UTC()
	}
	groups, beside := map[string]HistoryRow{}, map[string]HistoryRow{}
	for _, row := range view.Rows {
		if job != "" && (row.Job != job || row.Pseudo()) {
			continue
		}
		if row.Pseudo() {
			beside[row.Operation] = beside[row.Operation].plus(row.Operation, row)
			continue
		}
		if by == ByLimit {
			row.Units, row.Calls = 0, 0
		}
		name := groupName(by, row, zone)
		groups[name] = groups[name].plus(name, row)
		h.Total = h.Total.plus("", row)
	}
	h.Rows, h.Beside = historyRows(groups, query.Hours), historyRows(beside, false)
	return h, nil
}

func (r HistoryRow) plus(name string, row driver.HistoryRow) HistoryRow {
	return HistoryRow{name, r.Units + row.Units, r.Calls + row.Calls, r.Refused + row.Refused, r.Waited + row.Waited}
}

// groupName is the name of the group that a row belongs to.
func groupName(by GroupBy, row driver.HistoryRow, zone *time.Location) string {
	hour := time.UnixMicro(row.Hour).In(zone)
	switch by {
	case ByHour:
		return hour.Format(time.RFC3339)
	case ByDay:
		return hour.Format(time.DateOnly)
	case ByJob:
		return row.Job
	case ByRegion:
		return row.Region
	case ByLimit:
		return row.Limit
	}
	return row.Operation
}

// historyRows are the groups that anything was charged to or refused, in order.
func historyRows(groups map[string]HistoryRow, byTime bool) (rows []HistoryRow) {
	for _, row := range groups {
		if row != (HistoryRow{Name: row.Name}) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b HistoryRow) int {
		if byTime {
			return strings.Compare(instantOf(a.Name), instantOf(b.Name))
		}
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Waited, a.Waited), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// instantOf is the name of an hour or day in a form whose order is that of time: the local
// hours of a day on which the clocks change are not.
func instantOf(name string) string {
	if at, err := time.Parse(time.RFC3339, name); err == nil {
		return at.UTC().Format(time.RFC3339)
	}
	return name
}
