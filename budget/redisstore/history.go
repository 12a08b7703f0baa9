package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// historyDay is the length of the days by which history is kept, in µs.
const historyDay = 24 * driver.HistoryHour

// nearMidnight is how close to a day's end a call names the next day too, in µs.
const nearMidnight int64 = 60_000_000

// historyOf are the arguments for a script that may write history.
func (s *Store) historyOf(name string, days []int64) historyArgs {
	return historyArgs{s.kept(name), days}
}

// daysAround are the days that a call most likely writes: that of the server's clock, and
// near midnight the one beside it. Scripts ask for others.
func (s *Store) daysAround(name string, now int64) []int64 {
	if offset, known := s.clockOffset(name); known {
		now = time.Now().UnixMicro() + offset
	}
	return addDays(nil, (now-nearMidnight)/historyDay, (now+nearMidnight)/historyDay)
}

// addDays adds days that are not in the list yet.
func addDays(list []int64, days ...int64) []int64 {
	for _, day := range days {
		if !slices.Contains(list, day) {
			list = append(list, day)
		}
	}
	return list
}

// withDays adds the days for which a script asks.
func withDays(days []int64, a answer) []int64 {
	if a.status == statusDays {
		for _, day := range splitNames(text(a.rest, 0)) {
			days = addDays(days, number(day))
		}
	}
	return days
}

// dayKeys are the keys of days of a budget's history, two for each.
func (s *Store) dayKeys(name string, days []int64) []string {
	var keys []string
	for _, day := range days {
		no := strconv.FormatInt(day, 10)
		keys = append(keys, s.key(name, "h:"+no), s.key(name, "l:"+no))
	}
	return keys
}

// daysKeys are all keys of a ledger with these operations, and those of the days.
func (s *Store) daysKeys(name string, r registry, days []int64) []string {
	return append(s.keys(name, r), s.dayKeys(name, days)...)
}

// seriesOf names a series as the scripts do, without the ledger.
func seriesOf(operation string, labels driver.Labels) string {
	return operation + "|" + labels.Job + "|" + labels.Region
}

// spentSeries sums a batch's items by series, in the order in which these come first.
type spentSeries []struct {
	operation string
	labels    driver.Labels // of the first item: the run does not tell series apart
	units     int64
	calls     int64
}

// add adds an item.
func (s *spentSeries) add(item *driver.Item) {
	for i := range *s {
		if one := &(*s)[i]; one.operation == item.Operation && one.labels.Job == item.Labels.Job && one.labels.Region == item.Labels.Region {
			one.units += item.Units
			one.calls++
			return
		}
	}
	*s = append(*s, struct {
		operation string
		labels    driver.Labels
		units     int64
		calls     int64
	}{item.Operation, item.Labels, item.Units, 1})
}

// String is the form of the log of a day.
func (s spentSeries) String() string {
	var text []byte
	for _, one := range s {
		text = append(text, seriesOf(one.operation, one.labels)...)
		text = strconv.AppendInt(append(text, ' '), one.units, 10)
		text = append(strconv.AppendInt(append(text, ' '), one.calls, 10), ';')
	}
	return string(text)
}

// One run of history_read.lua reads up to daysAtOnce days, and roughly fieldsAtOnce series in
// them. A series has up to 24 hours in a day, about 400 bytes.
const (
	daysAtOnce   = 7
	fieldsAtOnce = 500
)

// past is one budget's history as its keys hold it.
type past struct {
	now    int64 // of the ledger
	clock  int64 // the earlier one
	newest int64 // the time of the newest entry
	ledger string
	since  int64 // the hour in which the rows begin
}

// dayID is the field of a day that holds its id.
const dayID = "@"

// pastRow is a row of one of the histories that a day holds.
type pastRow struct {
	driver.HistoryRow
	source string // the id of the history that it belongs to
	asOf   int64  // the instant (µs) whose numbers it has
}

// pastDay is what was read of a day.
type pastDay struct {
	day    int64
	fields map[string]string
	now    int64 // of the first run that read of it
}

// readHistory reads the history from an instant on and calls visit for each row.
func (s *Store) readHistory(ctx context.Context, name string, caller, since int64, visit func(pastRow) error) (past, error) {
	found, _, _, err := s.readDays(ctx, name, caller, nil, "0")
	if err != nil {
		return found, err
	}
	found.since = driver.HourOf(max(since, found.now-s.kept(name), 0))
	var days []int64
	last := driver.HourOf(max(found.newest, found.now)) // later hours are those of a ledger that was lost while its clock was ahead
	for day := found.since / historyDay; s.kept(name) > 0 && day <= last/historyDay; day++ {
		days = append(days, day)
	}
	for cursor, one := "0", (pastDay{fields: map[string]string{}}); len(days) > 0; {
		run, texts, next, err := s.readDays(ctx, name, caller, days[:min(daysAtOnce, len(days))], cursor)
		if err != nil {
			return found, err
		}
		cursor = next
		for i, list := range texts {
			if len(one.fields) == 0 {
				one.day, one.now = days[0], run.now
			}
			for j := 0; j+1 < len(list); j += 2 {
				one.fields[text(list, j)] = text(list, j+1)
			}
			if i == len(texts)-1 && cursor != "0" {
				break // the next run continues with this day
			}
			if err := s.visitDay(name, one, found.ledger, [2]int64{found.since, last}, visit); err != nil {
				return found, err
			}
			clear(one.fields)
			days = days[1:]
		}
	}
	return found, nil
}

// visitDay calls visit for each row of a day.
func (s *Store) visitDay(name string, d pastDay, ledger string, within [2]int64, visit func(pastRow) error) error {
	own := cmp.Or(d.fields[dayID], ledger)
	delete(d.fields, dayID)
	for field := range d.fields {
		if err := s.readSeries(name, d, field, own, within, visit); err != nil {
			return err
		}
	}
	return nil
}

// readDays runs history_read.lua. It returns, for each day that it came to, fields and their
// texts, and the cursor by which the next run continues with the last of these days; "0": it
// came to its end.
func (s *Store) readDays(ctx context.Context, name string, caller int64, days []int64, cursor string) (found past, texts [][]any, next string, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return found, nil, "", err
	}
	defer cancel()
	for {
		r := s.registry(name)
		a, err := s.ask(ctx, "read the history of", name, s.scripts.History, s.daysKeys(name, r, days), func(time.Time) []any {
			return arguments(historyReadArgs{ledgerArgs{r.sig, caller, s.historyOf(name, days)}, cursor, fieldsAtOnce})
		})
		switch {
		case err != nil:
			return found, nil, "", err
		case a.status == statusDone && (!historyRest(a.rest) || len(list(a.rest, 3)) > len(days) || len(list(a.rest, 3)) == 0 && len(days) > 0):
			return found, nil, "", s.strange("read the history of "+name, a.rest)
		case a.status == statusDone:
			found = past{now: numberAt(a.rest, 0), clock: earlierClock(a.now, caller), newest: numberAt(a.rest, 1), ledger: text(a.rest, 2)}
			return found, lists(a.rest, 3), text(a.rest, 4), nil
		case ctx.Err() != nil:
			return found, nil, "", fmt.Errorf("read the history of %s in Redis: %w: out of time", name, driver.ErrUnavailable)
		}
	}
}

// readSeries reads one field of a day, "hour units calls" by comma, from one hour to another;
// an imported one has the instant whose numbers it has after the calls, unless an older
// version brought it. own is the day's id.
func (s *Store) readSeries(name string, d pastDay, field, own string, within [2]int64, visit func(pastRow) error) error {
	names := append(strings.Split(field, "|"), own)
	if len(names) < 4 || len(names) > 5 {
		return s.damaged(name, fmt.Sprintf("h:%d has the field %q", d.day, field))
	}
	for one := range strings.SplitSeq(d.fields[field], ",") {
		var hour, units, calls, asOf int64
		if n, _ := fmt.Sscanf(one, "%d %d %d %d", &hour, &units, &calls, &asOf); n < 3 || hour < 0 || hour > 23 {
			return s.damaged(name, fmt.Sprintf("h:%d has the text %q", d.day, d.fields[field]))
		}
		if len(names) == 4 {
			asOf = d.now
		}
		row := driver.HistoryRow{Hour: d.day*historyDay + hour*driver.HistoryHour, Operation: names[0], Job: names[1], Region: names[2], Units: units, Calls: calls}
		if row.Hour < within[0] || row.Hour > within[1] || units == 0 && calls == 0 {
			continue
		}
		if err := visit(pastRow{row, names[3], asOf}); err != nil {
			return err
		}
	}
	return nil
}

// History implements driver.Store: some days in each run of a script.
func (s *Store) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	sums := q.Sums()
	found, err := s.readHistory(ctx, q.Budget, q.Now, q.Since, func(one pastRow) error {
		sums.Add(one.HistoryRow)
		return nil
	})
	if err != nil {
		return driver.History{}, err
	}
	return driver.History{Now: found.clock, Since: found.since, Rows: sums.Rows()}, nil
}

// countRefusals counts refusals in the history of a budget that has a ledger.
func (s *Store) countRefusals(ctx context.Context, r driver.Refusals) error {
	rows, days := []refusalArgs{}, s.daysAround(r.Budget, r.Now)
	for _, row := range r.Rows(math.MaxInt64) {
		rows = append(rows, refusalArgs{row.Hour, seriesOf(row.Operation, driver.Labels{Job: row.Job}), row.Calls})
		days = addDays(days, row.Hour/historyDay)
	}
	if s.kept(r.Budget) == 0 || len(rows) == 0 {
		return nil
	}
	for {
		known := s.registry(r.Budget)
		a, err := s.ask(ctx, "count refusals of", r.Budget, s.scripts.Refused, s.daysKeys(r.Budget, known, days), func(time.Time) []any {
			return arguments(refusedArgs{ledgerArgs{known.sig, r.Now, s.historyOf(r.Budget, days)}, rows})
		})
		switch {
		case err != nil || a.status == statusDone:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("count refusals of %s in Redis: %w: out of time", r.Budget, driver.ErrUnavailable)
		}
		days = withDays(days, a)
	}
}

// exportHistory writes a budget's history to an export.
func (s *Store) exportHistory(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	_, err := s.readHistory(ctx, export.Budget, export.Now, 0, func(row pastRow) error {
		return to.Row(driver.Row{
			ID: row.source, State: driver.RowHistory, Operation: row.Operation, Units: row.Units, Calls: row.Calls,
			Start: row.Hour, Score: row.Hour, Labels: driver.Labels{Job: row.Job, Region: row.Region}, AsOf: row.asOf,
		})
	})
	return err
}
