package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// historyDay is the length of the days by which history is kept, in µs.
const historyDay = 24 * driver.HistoryHour

// nearMidnight is how close to a day's end a call names the next day too, in µs.
const nearMidnight int64 = 60_000_000

// historyOf are the arguments for a script that may write history.
func (s *Store) historyOf(days []int64) historyArgs { return historyArgs{s.kept, days} }

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

// dayKeys are the keys of days of a budget's history.
func (s *Store) dayKeys(name string, days []int64) []string {
	keys := make([]string, len(days))
	for i, day := range days {
		keys[i] = s.key(name, "h:"+strconv.FormatInt(day, 10))
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

// seriesOf is the place, from 1, of the series in which the charges of an operation or a
// pair count.
func (a *chargeArgs) seriesOf(name string, labels driver.Labels) int {
	operation, _ := limit.CutPair(name)
	series := seriesOf(operation, labels)
	at := slices.Index(a.Series, series)
	if at < 0 {
		at = len(a.Series)
		a.Series = append(a.Series, series)
	}
	return at + 1
}

// daysAtOnce is how many days one run of history_read.lua reads.
const daysAtOnce = 7

// past is one budget's history as its keys hold it.
type past struct {
	now    int64 // of the ledger
	clock  int64 // the earlier one
	ledger string
	since  int64 // the hour from which on the rows are
}

// readHistory reads the history from an instant on and calls visit for each row; its ledger
// is empty for what the budget itself charged.
func (s *Store) readHistory(ctx context.Context, name string, caller, since int64, visit func(row driver.HistoryRow, ledger string) error) (past, error) {
	found, newest, _, err := s.readDays(ctx, name, caller, nil)
	if err != nil {
		return found, err
	}
	found.since = driver.HourOf(max(since, found.now-s.kept, 0))
	var days []int64
	last := driver.HourOf(max(newest, found.now)) // later hours are those of a ledger that was lost while its clock was ahead
	for day := found.since / historyDay; s.kept > 0 && day <= last/historyDay; day++ {
		days = append(days, day)
	}
	for some := range slices.Chunk(days, daysAtOnce) {
		_, _, texts, err := s.readDays(ctx, name, caller, some)
		if err != nil {
			return found, err
		}
		for i, day := range some {
			for j := 0; j+1 < len(texts[i]); j += 2 {
				if err := s.readSeries(name, day, text(texts[i], j), text(texts[i], j+1), [2]int64{found.since, last}, visit); err != nil {
					return found, err
				}
			}
		}
	}
	return found, nil
}

// readDays runs history_read.lua. It returns the time of the newest entry and, for each
// day, its fields and their texts.
func (s *Store) readDays(ctx context.Context, name string, caller int64, days []int64) (found past, newest int64, texts [][]any, err error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return found, 0, nil, err
	}
	defer cancel()
	for {
		r := s.registry(name)
		a, err := s.ask(ctx, "read the history of", name, s.scripts.History, s.daysKeys(name, r, days), func(time.Time) []any {
			return arguments(ledgerArgs{r.sig, caller, s.historyOf(days)})
		})
		switch {
		case err != nil:
			return found, 0, nil, err
		case a.status == statusDone && (!historyRest(a.rest) || len(list(a.rest, 3)) != len(days)):
			return found, 0, nil, s.strange("read the history of "+name, a.rest)
		case a.status == statusDone:
			return past{now: numberAt(a.rest, 0), clock: earlierClock(a.now, caller), ledger: text(a.rest, 2)}, numberAt(a.rest, 1), lists(a.rest, 3), nil
		case ctx.Err() != nil:
			return found, 0, nil, fmt.Errorf("read the history of %s in Redis: %w: out of time", name, driver.ErrUnavailable)
		}
	}
}

// readSeries reads one field of a day, "hour units calls" by comma, from one hour to another.
func (s *Store) readSeries(name string, day int64, field, hours string, within [2]int64, visit func(driver.HistoryRow, string) error) error {
	names := append(strings.Split(field, "|"), "")
	if len(names) < 4 || len(names) > 5 {
		return s.damaged(name, fmt.Sprintf("h:%d has the field %q", day, field))
	}
	for one := range strings.SplitSeq(hours, ",") {
		var hour, units, calls int64
		if _, err := fmt.Sscanf(one, "%d %d %d", &hour, &units, &calls); err != nil || hour < 0 || hour > 23 {
			return s.damaged(name, fmt.Sprintf("h:%d has the text %q", day, hours))
		}
		row := driver.HistoryRow{Hour: day*historyDay + hour*driver.HistoryHour, Operation: names[0], Job: names[1], Region: names[2], Units: units, Calls: calls}
		if row.Hour < within[0] || row.Hour > within[1] || units == 0 && calls == 0 {
			continue
		}
		if err := visit(row, names[3]); err != nil {
			return err
		}
	}
	return nil
}

// History implements driver.Store: some days in each run of a script.
func (s *Store) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	sums := map[driver.HistoryRow]driver.HistoryRow{}
	found, err := s.readHistory(ctx, q.Budget, q.Now, q.Since, func(row driver.HistoryRow, _ string) error {
		units, calls := row.Units, row.Calls
		row.Units, row.Calls = 0, 0
		row = q.Apart(row)
		sums[row] = driver.HistoryRow{Units: sums[row].Units + units, Calls: sums[row].Calls + calls}
		return nil
	})
	if err != nil {
		return driver.History{}, err
	}
	view := driver.History{Now: found.clock, Since: found.since}
	for row, sum := range sums {
		if row.Units, row.Calls = sum.Units, sum.Calls; row.Units != 0 || row.Calls != 0 {
			view.Rows = append(view.Rows, row)
		}
	}
	return view, nil
}

// exportHistory writes a budget's history to an export.
func (s *Store) exportHistory(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	var rows []driver.Row
	found, err := s.readHistory(ctx, export.Budget, export.Now, 0, func(row driver.HistoryRow, ledger string) error {
		rows = append(rows, driver.Row{
			ID: ledger, State: driver.RowHistory, Operation: row.Operation, Units: row.Units, Calls: row.Calls,
			Start: row.Hour, Score: row.Hour, Labels: driver.Labels{Job: row.Job, Region: row.Region},
		})
		return nil
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.ID == "" {
			row.ID = found.ledger
		}
		if err := to.Row(row); err != nil {
			return err
		}
	}
	return nil
}
