package memstore

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// series is whose charges a row of history sums. source is the id of the history from which
// an import brought them; empty: this budget's own.
type series struct{ operation, job, region, source string }

type hourly struct {
	hour int64
	series
}

type sum struct {
	units, calls int64
	asOf         int64 // of an imported row: the instant whose numbers these are
}

// history is what was charged to one budget, by the hour. A reset does not touch it.
type history struct {
	rows map[hourly]*sum
	// ids name each day's history in exports: by the ledger that charged first in the day,
	// whatever ledger charges later.
	ids map[int64]string
}

func newHistory() *history { return &history{map[hourly]*sum{}, map[int64]string{}} }

// historyDay is the length of the days by which history is kept, in µs.
const historyDay = 24 * driver.HistoryHour

// kept is the first hour that is kept at now.
func kept(now int64) int64 { return driver.HourOf(max(0, now-driver.HistoryKept)) }

// lastHour is the last hour that is shown at now. Later ones are those of a ledger that was
// lost while its clock was ahead.
func (l *ledger) lastHour(now int64) int64 { return driver.HourOf(max(now, l.newest)) }

// noteSpent adds to the hour in which a charge was made. What is older than all that is kept
// is left out.
func (l *ledger) noteSpent(at int64, s series, units, calls int64) {
	hour, h := driver.HourOf(at), l.history
	if hour < kept(l.last) || units == 0 && calls == 0 {
		return
	}
	if h.ids[hour/historyDay] == "" {
		h.ids[hour/historyDay] = l.id
	}
	row := h.row(hour, h.place(hour, s))
	row.units, row.calls = row.units+units, row.calls+calls
}

// row is the row of an hour.
func (h *history) row(hour int64, s series) *sum {
	key := hourly{hour, s}
	if h.rows[key] == nil {
		h.rows[key] = &sum{}
	}
	return h.rows[key]
}

// place is the series itself, or once a day has driver.MaxSeries others that of the
// operation or the limit alone.
func (h *history) place(hour int64, s series) series {
	seen := map[series]bool{}
	for key := range h.rows {
		if key.hour/historyDay == hour/historyDay && key.source == "" {
			seen[key.series] = true
		}
	}
	if seen[s] || len(seen) < driver.MaxSeries || limit.IsPseudo(s.operation) {
		return s
	}
	return series{operation: driver.Beyond(s.operation)}
}

// drop drops what is no longer kept.
func (h *history) drop(now int64) {
	for key := range h.rows {
		if key.hour < kept(now) {
			delete(h.rows, key)
		}
	}
	for day := range h.ids {
		if day < kept(now)/historyDay {
			delete(h.ids, day)
		}
	}
}

// noteCharge notes a change of what an entry counts, in the hour in which it was charged.
func (l *ledger) noteCharge(e *entry, units, calls int64) {
	l.noteSpent(e.start, series{operation: e.item.Operation, job: e.item.Labels.Job, region: e.item.Labels.Region}, units, calls)
}

// noteEnd does so for a reservation's end, if the history has its charge.
func (l *ledger) noteEnd(e *entry, units, calls int64) {
	if e.start > l.unnoted {
		l.noteCharge(e, units, calls)
	}
}

// noteFound notes drift or recovered units of a limit, in the present hour.
func (l *ledger) noteFound(lim limit.Limit, operation string, amount int64) {
	if lim.Counts == limit.CountCalls {
		l.noteSpent(l.last, series{operation: operation}, 0, amount)
		return
	}
	l.noteSpent(l.last, series{operation: operation}, amount, 0)
}

// importHistory takes over a row of another history, in place of one that an earlier
// import brought, unless that has the numbers of a later instant.
func (l *ledger) importHistory(r driver.Row, now int64) {
	if r.ID == l.id || r.ID == l.history.ids[r.Start/historyDay] || r.Start < kept(now) {
		return
	}
	if row := l.history.row(r.Start, series{r.Operation, r.Labels.Job, r.Labels.Region, r.ID}); r.AsOf >= row.asOf {
		*row = sum{r.Units, r.Calls, r.AsOf}
	}
}

// export writes the rows up to an hour for an export.
func (h *history) export(now, last int64, to driver.LedgerWriter) error {
	for key, row := range h.rows {
		id, asOf := key.source, row.asOf
		if id == "" {
			id, asOf = h.ids[key.hour/historyDay], now
		}
		if key.hour < kept(now) || key.hour > last || row.units == 0 && row.calls == 0 {
			continue
		}
		err := to.Row(driver.Row{
			ID: id, State: driver.RowHistory, Operation: key.operation, Units: row.units, Calls: row.calls,
			Start: key.hour, Score: key.hour, Labels: driver.Labels{Job: key.job, Region: key.region}, AsOf: asOf,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// History implements driver.Store.
func (s *Store) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.enter(ctx, q.Budget, q.Now)
	if err != nil {
		return driver.History{}, fmt.Errorf("history of %s: %w", q.Budget, err)
	}
	view := driver.History{Now: when.clock, Since: max(driver.HourOf(q.Since), kept(when.now))}
	sums, last := q.Sums(), l.lastHour(when.now)
	for key, row := range l.history.rows {
		if key.hour >= view.Since && key.hour <= last {
			sums.Add(driver.HistoryRow{Hour: key.hour, Operation: key.operation, Job: key.job, Region: key.region, Units: row.units, Calls: row.calls})
		}
	}
	view.Rows = sums.Rows()
	return view, nil
}

// countRefusals counts refusals in the history of a budget that has a ledger.
func (s *Store) countRefusals(ctx context.Context, r driver.Refusals) error {
	l, when, err := s.enter(ctx, r.Budget, r.Now)
	if err != nil || s.ledgers[r.Budget] == nil {
		return err
	}
	l.last = when.now
	for _, row := range r.Rows(when.now) {
		l.noteSpent(row.Hour, series{operation: row.Operation, job: row.Job}, 0, row.Calls)
	}
	return nil
}
