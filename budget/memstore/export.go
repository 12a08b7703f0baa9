package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Export implements driver.Store.
func (s *Store) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, when, err := s.enter(ctx, export.Budget, export.Now)
	if err != nil {
		return err
	}
	head, whole := driver.LedgerHead{At: when.now}, len(export.Counting.Limits) == 0
	if s.ledgers[export.Budget] != nil {
		head.Ledger, head.Born, head.Gone, head.Unnoted = l.id, l.born, l.gone, l.unnoted
		if whole {
			head.Locks = l.standing(when.now)
		}
	}
	err = to.Head(head)
	if err == nil && whole {
		err = l.history.export(when.now, l.lastHour(when.now), to)
	}
	for _, e := range l.entries {
		if err != nil {
			return err
		}
		if e.score > l.gone && (whole || e.countsIn(export.Counting)) {
			err = to.Row(e.export(l.id))
		}
	}
	return err
}

// countsIn reports whether one of the limits counts the entry.
func (e *entry) countsIn(c driver.Counting) bool {
	return slices.ContainsFunc(c.Limits, func(l limit.Limit) bool { return e.score > l.Window.Cut(c.At) && e.counts(l) })
}

// export is the entry in the form that other stores import.
func (e *entry) export(ledger string) driver.Row {
	states := map[state]driver.RowState{plain: driver.RowPlain, open: driver.RowOpen, settled: driver.RowSettled, released: driver.RowReleased}
	r := driver.Row{
		ID: driver.MergedID(e.item.ID, ledger), Operation: e.item.Operation, State: states[e.state],
		Asked: e.item.Units, Units: e.units, Calls: e.calls, Start: e.start, Score: e.score, Labels: e.item.Labels, Observed: e.seen,
	}
	if e.row || e.noID {
		r.State, r.Asked, r.Start = driver.RowMerged, e.units, e.score
	}
	return r
}

// importRows imports rows of an exported ledger.
func (s *Store) importRows(ctx context.Context, c driver.Import) (answer driver.Imported, err error) {
	if err := c.Validate(); err != nil {
		return answer, fmt.Errorf("memory store: %w", err)
	}
	_, when, err := s.enter(ctx, c.Budget, c.Now)
	if err == nil && c.Head.At > when.later+driver.ClockTolerance {
		err = fmt.Errorf("memory store: %w: the export is of %d µs, the clock shows %d", driver.ErrClock, c.Head.At, when.later)
	}
	if err != nil {
		return answer, err
	}
	if s.ledgers[c.Budget] == nil && c.Head.Born > 0 {
		l := s.newLedger(c.Budget)
		l.born, l.gone = min(c.Head.Born, when.now), min(c.Head.Gone, when.now)
		s.begun(c.Budget, l)
	}
	l, when, err := s.bring(ctx, c.Budget, c.Now, c.Limits)
	if err != nil {
		return answer, err
	}
	answer.Now = when.clock
	noted := false
	answer.Done, noted = l.imports.Rows(c.Export)
	if answer.Done < c.From || noted && answer.Done >= c.From+int64(len(c.Rows)) {
		return answer, nil
	}
	l.unnoted = max(l.unnoted, c.Head.Unnoted)
	for i, row := range c.Rows {
		if c.From+int64(i) >= answer.Done {
			l.importRow(row, c.Head, when.now, &answer)
		}
	}
	for _, lock := range c.Head.Locks {
		if !noted {
			l.importLock(lock, when.now)
		}
	}
	answer.Done = max(answer.Done, c.From+int64(len(c.Rows)))
	l.imports.Note(c.Export, answer.Done)
	if c.Last { // the buckets are filled again, from what the next decision would find
		l.merge(when.now)
		clear(l.meters)
		l.useMeters(c.Limits, when.now)
	}
	return answer, nil
}

// importRow imports one row.
func (l *ledger) importRow(r driver.Row, head driver.LedgerHead, now int64, answer *driver.Imported) {
	if r.State == driver.RowHistory {
		l.importHistory(r, now)
		return
	}
	if r.Score <= max(l.gone, l.horizon(now)) {
		answer.Gone++
		return
	}
	id := driver.OwnID(r.ID, l.id)
	old := l.at(id)
	if old != nil && r.State != driver.RowMerged && !old.is(r) {
		id = driver.OtherID(r.ID, head)
		old = l.at(id)
	}
	added := entryOf(r, id)
	switch {
	case old == nil:
		l.entries = append(l.entries, added)
	case limit.IsPseudo(r.Operation) && (added.units > old.units || added.calls > old.calls || added.score > old.score):
		old.units, old.calls = max(old.units, added.units), max(old.calls, added.calls)
		old.start, old.score = max(old.start, added.start), max(old.score, added.score)
	case old.state == open && (added.state == settled || added.state == released):
		*old = *added
	default:
		answer.Known++
		return
	}
	answer.Added++
	l.changes++
	if r.State == driver.RowMerged {
		return
	}
	l.merged = min(l.merged, r.Score-1)
	if r.Start > l.newest && id == r.ID {
		l.newest, l.newestID = r.Start, id
	}
}

// at is the entry that the ledger keeps under an id, or nil.
func (l *ledger) at(id string) *entry {
	for _, e := range l.entries {
		if e.item.ID == id && e.score > l.gone {
			return e
		}
	}
	return nil
}

// is reports whether the entry is the same charge as an exported one with its id.
func (e *entry) is(r driver.Row) bool {
	return e.item.Operation == r.Operation && e.item.Units == r.Asked && (e.state != plain) == (r.State != driver.RowPlain)
}

// entryOf is a row as an entry.
func entryOf(r driver.Row, id string) *entry {
	e := &entry{
		item:  driver.Item{ID: id, Operation: r.Operation, Units: r.Asked, Labels: r.Labels},
		start: r.Start, score: r.Score, units: r.Units, calls: r.Calls, seen: r.Observed,
	}
	e.state = map[driver.RowState]state{driver.RowOpen: open, driver.RowSettled: settled, driver.RowReleased: released}[r.State]
	if e.state != plain {
		e.item.Lease = 1 // its length is unknown; above 0 makes it a reservation
	}
	e.row = limit.IsPseudo(r.Operation)
	e.noID = r.State == driver.RowMerged && !e.row
	return e
}

// importLock imports a lock, unless the ledger has one that ends no earlier.
func (l *ledger) importLock(k driver.LockView, now int64) {
	if k.Until > now && k.Until > l.locks[k.Limit].until {
		l.locks[k.Limit] = lock{k.Until, k.Since, k.Why}
		l.living(now)
		l.changes++
	}
}
