package memstore

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// series is whose charges a row of history sums. ledger is the id of the foreign ledger
// that made them; empty: this budget's own.
type series struct{ operation, job, region, ledger string }

type hourly struct {
	hour int64
	series
}

type sum struct{ units, calls int64 }

// history is what was charged to one budget, by the hour. A reset does not touch it.
type history map[hourly]*sum

// kept is the first hour that is kept at now.
func kept(now int64) int64 { return driver.HourOf(max(0, now-driver.HistoryKept)) }

// lastHour is the last hour that is shown at now. Later ones are those of a ledger that was
// lost while its clock was ahead.
func (l *ledger) lastHour(now int64) int64 { return driver.HourOf(max(now, l.newest)) }

// note adds to the hour in which a charge was made. What is older than all that is kept
// is left out.
func (h history) note(at, now int64, s series, units, calls int64) {
	hour := driver.HourOf(at)
	if hour < kept(now) || units == 0 && calls == 0 {
		return
	}
	row := h.row(hour, h.place(hour, s))
	row.units, row.calls = row.units+units, row.calls+calls
}

// row is the row of an hour.
func (h history) row(hour int64, s series) *sum {
	key := hourly{hour, s}
	if h[key] == nil {
		h[key] = &sum{}
	}
	return h[key]
}

// place is the series itself, or once a day has driver.MaxSeries others that of the
// operation alone.
func (h history) place(hour int64, s series) series {
	const day = 24 * driver.HistoryHour
	seen := map[series]bool{}
	for key := range h {
		if key.hour/day == hour/day && key.ledger == "" {
			seen[key.series] = true
		}
	}
	if seen[s] || len(seen) < driver.MaxSeries || limit.IsPseudo(s.operation) {
		return s
	}
	return series{operation: s.operation}
}

// drop drops what is no longer kept.
func (h history) drop(now int64) {
	for key := range h {
		if key.hour < kept(now) {
			delete(h, key)
		}
	}
}

// noteCharge notes a change of what an entry counts, in the hour in which it was charged.
func (l *ledger) noteCharge(e *entry, units, calls int64) {
	l.history.note(e.start, l.last, series{operation: e.item.Operation, job: e.item.Labels.Job, region: e.item.Labels.Region}, units, calls)
}

// noteFound notes drift or recovered units of a limit, in the present hour.
func (l *ledger) noteFound(lim limit.Limit, operation string, amount int64) {
	if lim.Counts == limit.CountCalls {
		l.history.note(l.last, l.last, series{operation: operation}, 0, amount)
		return
	}
	l.history.note(l.last, l.last, series{operation: operation}, amount, 0)
}

// imported takes over a row of another ledger's history, in place of one that an earlier
// import brought.
func (h history) imported(r driver.Row, own string, now int64) {
	if r.ID == own || r.Start < kept(now) {
		return
	}
	*h.row(r.Start, series{r.Operation, r.Labels.Job, r.Labels.Region, r.ID}) = sum{r.Units, r.Calls}
}

// export writes the rows for an export of a ledger.
func (h history) export(ledger string, now, last int64, to driver.LedgerWriter) error {
	for key, row := range h {
		id := key.ledger
		if id == "" {
			id = ledger
		}
		if key.hour < kept(now) || key.hour > last || row.units == 0 && row.calls == 0 {
			continue
		}
		err := to.Row(driver.Row{
			ID: id, State: driver.RowHistory, Operation: key.operation, Units: row.units, Calls: row.calls,
			Start: key.hour, Score: key.hour, Labels: driver.Labels{Job: key.job, Region: key.region},
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
	rows, last := map[driver.HistoryRow]*driver.HistoryRow{}, l.lastHour(when.now)
	for key, row := range s.histories[q.Budget] {
		if key.hour < view.Since || key.hour > last {
			continue
		}
		one := q.Apart(driver.HistoryRow{Hour: key.hour, Operation: key.operation, Job: key.job, Region: key.region})
		if rows[one] == nil {
			rows[one] = &driver.HistoryRow{}
			*rows[one] = one
		}
		rows[one].Units += row.units
		rows[one].Calls += row.calls
	}
	for _, row := range rows {
		if row.Units != 0 || row.Calls != 0 {
			view.Rows = append(view.Rows, *row)
		}
	}
	return view, nil
}
