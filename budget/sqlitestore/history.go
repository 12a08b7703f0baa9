package sqlitestore

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// historyTables keep what was charged, by the hour. They know a budget by its name, so
// that a reset, and a ledger that is deleted as idle, leave its history.
const historyTables = `
CREATE TABLE series (
	no INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, since processes cache it
	budget TEXT NOT NULL, operation TEXT NOT NULL, job TEXT NOT NULL, region TEXT NOT NULL,
	ledger TEXT NOT NULL,        -- the id of the history from which an import brought it; empty: the budget's own
	last INTEGER NOT NULL,       -- the latest hour
	UNIQUE (budget, operation, job, region, ledger)
);
CREATE INDEX series_last ON series(last);
CREATE TABLE history (
	series INTEGER NOT NULL,
	hour INTEGER NOT NULL,       -- hours since the Unix epoch
	units INTEGER NOT NULL, calls INTEGER NOT NULL,
	PRIMARY KEY (series, hour)
) WITHOUT ROWID;
`

// asOfColumn notes, of a row that an import brought, the instant (µs) whose numbers it has.
const asOfColumn = "ALTER TABLE history ADD COLUMN as_of INTEGER NOT NULL DEFAULT 0;"

// dayTable counts a budget's own series in each day, so that a charge that is the first of
// its series in an hour need not count them.
const dayTable = `
CREATE TABLE history_day (
	budget TEXT NOT NULL,
	day INTEGER NOT NULL,        -- days since the Unix epoch
	id TEXT NOT NULL,            -- that of the day's history in exports, whatever ledger charges later
	series INTEGER NOT NULL,     -- how many of the budget's own series have rows in the day
	PRIMARY KEY (budget, day)
) WITHOUT ROWID;
`

// series is whose charges a row of history sums. source is the id of the history from which
// an import brought them; empty: the budget's own.
type series struct{ operation, job, region, source string }

type hourly struct {
	hour int64 // hours since the Unix epoch
	series
}

type sum struct{ units, calls int64 }

// historyDay is a day, in hours.
const historyDay = 24

// firstHour is the first hour that is kept at now.
func (l *ledger) firstHour(now int64) int64 { return max(0, now-l.historyKept) / driver.HistoryHour }

// lastHour is the last hour that is shown at now. Later ones are those of a ledger that was
// lost while its clock was ahead.
func (l *ledger) lastHour(now int64) int64 { return max(now, l.newest) / driver.HistoryHour }

// noteSpent adds to the hour of an instant. The transaction's sums are written at its end.
func (l *ledger) noteSpent(at int64, s series, units, calls int64) {
	switch {
	case l.historyKept < 0:
		l.unnoted = max(l.unnoted, at)
		return
	case units == 0 && calls == 0:
		return
	}
	key := hourly{at / driver.HistoryHour, s}
	if l.noted == nil {
		l.noted = map[hourly]sum{}
	}
	old := l.noted[key]
	l.noted[key] = sum{old.units + units, old.calls + calls}
}

// noteFound notes drift or recovered units of a limit, in the present hour.
func (v *counting) noteFound(operation string, amount int64) {
	units, calls := amount, int64(0)
	if v.limit.Counts == limit.CountCalls {
		units, calls = 0, amount
	}
	v.l.noteSpent(v.l.last, series{operation: operation}, units, calls)
}

// noteEnd notes how a reservation's end changes what it counts, in the hour in which it
// was charged, if the history has the charge.
func (l *ledger) noteEnd(e *entry, units, calls int64) error {
	if l.historyKept < 0 || e.start <= l.unnoted || units == 0 && calls == 0 {
		return nil
	}
	job, err := l.labelText(e.job)
	if err != nil {
		return err
	}
	region, err := l.labelText(e.region)
	if err != nil {
		return err
	}
	l.noteSpent(e.start, series{operation: l.base(e.operation()), job: job, region: region}, units, calls)
	return nil
}

// writeHistory writes what the transaction noted. What is for a row of the present hour waits
// in the budget's row from then on.
func (l *ledger) writeHistory() error {
	hour := l.last / driver.HistoryHour
	for key := range l.waiting {
		if key.hour != hour {
			if err := l.addWaiting(); err != nil {
				return err
			}
			break
		}
	}
	for key, sum := range l.noted {
		if key.hour < l.firstHour(l.last) {
			continue
		}
		if one := l.waiting[key]; one != nil {
			one.units, one.calls = one.units+sum.units, one.calls+sum.calls
			continue
		}
		no, err := l.addHistory(key, sum)
		if err != nil {
			return err
		}
		if key.hour != hour || driver.IsRefusal(key.operation) { // what each charge writes stays small
			continue
		}
		if len(l.waiting) >= mostHot {
			if err := l.addWaiting(); err != nil {
				return err
			}
		}
		l.waiting[key] = &waiting{no: no}
	}
	clear(l.noted)
	return nil
}

// addToHistory adds to a row that exists.
const addToHistory = "UPDATE history SET units = units + ?, calls = calls + ? WHERE series = ? AND hour = ?"

// addHistory adds to one row, which it makes if it is missing, and returns the number of its
// series.
func (l *ledger) addHistory(key hourly, add sum) (no int64, err error) {
	if no, known := l.series[key.series]; known {
		rows, err := l.c.change(addToHistory, add.units, add.calls, no, key.hour)
		if err != nil || rows > 0 {
			return no, err
		}
	}
	if err := l.place(&key); err != nil {
		return 0, err
	}
	if no, err = l.seriesNumber(key); err != nil {
		return 0, err
	}
	rows, err := l.c.change(addToHistory, add.units, add.calls, no, key.hour)
	if err != nil || rows > 0 {
		return no, err
	}
	if err := l.c.exec("INSERT INTO history(series, hour, units, calls) VALUES (?, ?, ?, ?)", no, key.hour, add.units, add.calls); err != nil {
		return 0, err
	}
	return no, l.pruneHistory(no)
}

// place turns the series into that of the operation or the limit alone, if the day has
// driver.MaxSeries others. It counts the series if it is new in the day; the caller then
// writes its first row.
func (l *ledger) place(key *hourly) error {
	fresh, err := l.isNewInDay(*key)
	if err != nil || !fresh {
		return err
	}
	var known int64
	day := key.hour / historyDay
	if _, err := l.c.first("SELECT series FROM history_day WHERE budget = ? AND day = ?", []any{l.name, day}, &known); err != nil {
		return err
	}
	if known >= driver.MaxSeries && !limit.IsPseudo(key.operation) {
		key.series = series{operation: driver.Beyond(key.operation)}
		if fresh, err := l.isNewInDay(*key); err != nil || !fresh {
			return err
		}
	}
	return l.c.exec(`INSERT INTO history_day(budget, day, id, series) VALUES (?, ?, ?, 1)
		ON CONFLICT DO UPDATE SET series = series + 1`, l.name, day, l.id)
}

// isNewInDay reports whether a series of the budget's own has no row in the day of an hour.
func (l *ledger) isNewInDay(key hourly) (bool, error) {
	var one int64
	first := key.hour - key.hour%historyDay
	found, err := l.c.first(`SELECT 1 FROM series JOIN history ON series = no
		WHERE budget = ? AND operation = ? AND job = ? AND region = ? AND ledger = '' AND hour BETWEEN ? AND ? LIMIT 1`,
		[]any{l.name, key.operation, key.job, key.region, first, first + historyDay - 1}, &one)
	return !found, err
}

// maxSeries bounds the series whose numbers a process caches for a budget.
const maxSeries = 4096

// seriesNumber returns a series' number, notes the hour, and assigns a number to a new one.
func (l *ledger) seriesNumber(key hourly) (no int64, err error) {
	_, err = l.c.first(`INSERT INTO series(budget, operation, job, region, ledger, last) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET last = max(last, excluded.last) RETURNING no`,
		[]any{l.name, key.operation, key.job, key.region, key.source, key.hour}, &no)
	if err != nil {
		return 0, err
	}
	if len(l.series) >= maxSeries {
		clear(l.series)
	}
	l.series[key.series] = no
	return no, nil
}

// pruneHistory removes what is no longer kept: rows of this series, days of the budget, and
// one series of any budget that was not charged for so long.
func (l *ledger) pruneHistory(no int64) error {
	first := l.firstHour(l.last)
	if err := l.c.exec("DELETE FROM history WHERE series = ? AND hour < ?", no, first); err != nil {
		return err
	}
	if err := l.c.exec("DELETE FROM history_day WHERE budget = ? AND day < ?", l.name, first/historyDay); err != nil {
		return err
	}
	var old int64
	var budget string
	found, err := l.c.first("SELECT no, budget FROM series WHERE last < ? ORDER BY last LIMIT 1", []any{first}, &old, &budget)
	if err != nil || !found {
		return err
	}
	if err := l.c.exec("DELETE FROM history WHERE series = ?", old); err != nil {
		return err
	}
	if err := l.c.exec("DELETE FROM series WHERE no = ?", old); err != nil {
		return err
	}
	return l.c.exec("DELETE FROM history_day WHERE budget = ?1 AND NOT EXISTS (SELECT 1 FROM series WHERE budget = ?1)", budget)
}

// importHistory takes over a row of another history, in place of one that an earlier import
// brought, unless that has the numbers of a later instant.
func (l *ledger) importHistory(r driver.Row) error {
	key := hourly{r.Start / driver.HistoryHour, series{r.Operation, r.Labels.Job, r.Labels.Region, r.ID}}
	if r.ID == l.id || l.historyKept < 0 || key.hour < l.firstHour(l.last) {
		return nil
	}
	var own string
	if _, err := l.c.first("SELECT id FROM history_day WHERE budget = ? AND day = ?", []any{l.name, key.hour / historyDay}, &own); err != nil || own == r.ID {
		return err
	}
	no, err := l.seriesNumber(key)
	if err != nil {
		return err
	}
	return l.c.exec(`INSERT INTO history(series, hour, units, calls, as_of) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET units = excluded.units, calls = excluded.calls, as_of = excluded.as_of
		WHERE excluded.as_of >= history.as_of`, no, key.hour, r.Units, r.Calls, r.AsOf)
}

// exportHistory writes a budget's history at now to an export.
func (l *ledger) exportHistory(ctx context.Context, now int64, to driver.LedgerWriter) error {
	var day, no int64
	var id string
	ids := map[int64]string{}
	if err := l.c.each("SELECT day, id FROM history_day WHERE budget = ?", []any{l.name}, func() { ids[day] = id }, &day, &id); err != nil {
		return err
	}
	var one series
	list := map[int64]series{}
	err := l.c.each("SELECT no, operation, job, region, ledger FROM series WHERE budget = ?", []any{l.name}, func() { list[no] = one },
		&no, &one.operation, &one.job, &one.region, &one.source)
	if err != nil {
		return err
	}
	for no, s := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := driver.Row{ID: s.source, State: driver.RowHistory, Operation: s.operation, Labels: driver.Labels{Job: s.job, Region: s.region}}
		var hour int64
		var rows []driver.Row
		err := l.c.each("SELECT hour, units, calls, as_of FROM history WHERE series = ? AND hour BETWEEN ? AND ?", []any{no, l.firstHour(now), l.lastHour(now)}, func() {
			if s.source == "" {
				row.ID, row.AsOf = ids[hour/historyDay], now
			}
			for key, one := range l.waiting {
				if one.no == no && key.hour == hour {
					row.Units, row.Calls = row.Units+one.units, row.Calls+one.calls
				}
			}
			if row.Units == 0 && row.Calls == 0 {
				return
			}
			row.Start = hour * driver.HistoryHour
			row.Score = row.Start
			rows = append(rows, row)
		}, &hour, &row.Units, &row.Calls, &row.AsOf)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := to.Row(row); err != nil {
				return errWriter{err}
			}
		}
	}
	return nil
}

// History implements driver.Store.
func (s *Store) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	var view driver.History
	err := s.readAlone(ctx, func(c *conn) (err error) {
		view, err = s.pastOf(c, q)
		return err
	})
	if err != nil {
		return driver.History{}, s.explain(ctx, "read the history of "+q.Budget, err)
	}
	return view, nil
}

// pastOf is History within a transaction.
func (s *Store) pastOf(c *conn, q driver.HistoryQuery) (view driver.History, err error) {
	l, when, err := s.entered(c, q.Budget, q.Now)
	if err != nil {
		return view, err
	}
	l.historyKept = s.historyKept(q.Budget)
	first := max(q.Since/driver.HistoryHour, l.firstHour(when.now))
	view = driver.History{Now: when.clock, Since: first * driver.HistoryHour}
	column := func(name, other string, apart bool) string {
		if apart {
			return name
		}
		return other
	}
	query := "SELECT " + column("hour", "0", q.Hours) + ", operation, " + column("job", "''", q.Jobs) + ", " + column("region", "''", q.Regions) +
		", sum(units), sum(calls) FROM series JOIN history ON series = no WHERE budget = ? AND hour BETWEEN ? AND ? GROUP BY 1, 2, 3, 4"
	sums := q.Sums()
	var r driver.HistoryRow
	add := func() {
		row := r
		row.Hour *= driver.HistoryHour
		sums.Add(row)
	}
	err = c.each(query, []any{q.Budget, first, l.lastHour(when.now)}, add, &r.Hour, &r.Operation, &r.Job, &r.Region, &r.Units, &r.Calls)
	for key, one := range l.waiting {
		if err != nil || key.hour < first || key.hour > l.lastHour(when.now) {
			continue
		}
		r = driver.HistoryRow{Hour: key.hour, Units: one.units, Calls: one.calls}
		var found bool
		if found, err = c.first("SELECT operation, job, region FROM series WHERE no = ?", []any{one.no}, &r.Operation, &r.Job, &r.Region); found {
			add()
		}
	}
	view.Rows = sums.Rows()
	return view, err
}

// countRefusals counts refusals in the history of a budget that has a ledger.
func (s *Store) countRefusals(ctx context.Context, r driver.Refusals) error {
	if s.historyKept(r.Budget) < 0 {
		return nil
	}
	return s.relock(ctx, r.Budget, r.Now, func(l *ledger, when moment) error {
		if l.b == 0 {
			return nil
		}
		for _, row := range r.Rows(when.now) {
			l.noteSpent(row.Hour, series{operation: row.Operation, job: row.Job}, 0, row.Calls)
		}
		return nil
	})
}
