package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// exportChunk is how many entries an export reads between two checks of the context.
const exportChunk = 10_000

// rowStates are the states of entries, by their number.
var rowStates = [...]driver.RowState{
	statePlain: driver.RowPlain, stateOpen: driver.RowOpen, stateSettled: driver.RowSettled,
	stateReleased: driver.RowReleased, stateMerged: driver.RowMerged,
}

// errWriter is an error of the LedgerWriter.
type errWriter struct{ error }

// Export implements driver.Store. It reads one state of the ledger, however long that
// takes, and neither waits for writers nor delays them.
func (s *Store) Export(ctx context.Context, export driver.Export, to driver.LedgerWriter) error {
	err := s.readAlone(ctx, func(c *conn) error { return s.export(ctx, c, export, to) })
	var written errWriter
	if errors.As(err, &written) {
		return written.error
	}
	if err != nil {
		return s.explain(ctx, "export "+export.Budget, err)
	}
	return nil
}

// export is Export within a transaction.
func (s *Store) export(ctx context.Context, c *conn, export driver.Export, to driver.LedgerWriter) error {
	l, when, err := s.entered(c, export.Budget, export.Now)
	if err != nil {
		return err
	}
	head, whole := driver.LedgerHead{At: when.now}, len(export.Counting.Limits) == 0
	if l.b > 0 {
		head.Ledger, head.Born, head.Gone, head.Unnoted = l.id, l.born, l.gone, l.unnoted
		if whole {
			head.Locks = l.standing(when.now)
		}
	}
	if l.historyKept = s.historyKept(export.Budget); l.historyKept < 0 {
		head.Unnoted = max(l.unnoted, l.newest)
	}
	if err := to.Head(head); err != nil {
		return errWriter{err}
	}
	if whole && l.historyKept >= 0 {
		if err := l.exportHistory(ctx, when.now, to); err != nil {
			return err
		}
	}
	labels := map[int64]string{}
	var no int64
	var name string
	if err := c.each("SELECT no, name FROM label WHERE b = ?", []any{l.b}, func() { labels[no] = name }, &no, &name); err != nil {
		return err
	}
	r := rowReader{ctx: ctx, l: l, labels: labels, to: to}
	if whole {
		return r.all()
	}
	return r.counting(export.Counting)
}

// rowReader gives a ledger's entries to a writer.
type rowReader struct {
	ctx    context.Context
	l      *ledger
	labels map[int64]string
	to     driver.LedgerWriter
}

// all gives every entry.
func (r rowReader) all() error {
	last := entry{lane: -1}
	for more := true; more; {
		n := 0
		err := r.chunk("(lane, score, no) > (?, ?, ?) ORDER BY lane, score, no LIMIT ?", []any{last.lane, last.score, last.no, exportChunk},
			func(e entry) { last, n = e, n+1 })
		if err != nil {
			return err
		}
		more = n > 0
	}
	return nil
}

// counting gives the entries that the limits may count, lane by lane.
func (r rowReader) counting(c driver.Counting) error {
	lanes, err := r.l.lanes()
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		if !slices.ContainsFunc(c.Limits, func(one limit.Limit) bool { return covered(one, lane) && r.l.covers(one, lane/classes) }) {
			continue
		}
		for above, more := c.Above(), true; more; {
			upto := toTheEnd
			more, err = r.l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? ORDER BY score LIMIT 1 OFFSET ?",
				[]any{r.l.b, lane, above, exportChunk - 1}, &upto)
			if err != nil {
				return err
			}
			if err := r.chunk("lane = ? AND score > ? AND score <= ?", []any{lane, above, upto}, func(entry) {}); err != nil {
				return err
			}
			above = upto
		}
	}
	return nil
}

// chunk gives the entries of a condition, and calls each with them.
func (r rowReader) chunk(where string, args []any, each func(entry)) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	var e entry
	var rows []driver.Row
	l := r.l
	err := l.c.each("SELECT "+entryColumns+" FROM entry WHERE b = ? AND "+where,
		append([]any{l.b}, args...), func() {
			each(e)
			if e.score > l.gone {
				rows = append(rows, driver.Row{
					ID: driver.MergedID(e.id, l.id), Operation: l.base(e.operation()), State: rowStates[e.state],
					Asked: e.asked, Units: e.units, Calls: e.calls, Start: e.start, Score: e.score,
					Labels: driver.Labels{Job: r.labels[e.job], Region: r.labels[e.region], Run: r.labels[e.run]}, Observed: e.observed,
				})
			}
		}, e.columns()...)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := r.to.Row(row); err != nil {
			return errWriter{err}
		}
	}
	return nil
}

// importRows adds rows of an exported ledger.
func (s *Store) importRows(ctx context.Context, c driver.Import) (answer driver.Imported, err error) {
	if err := c.Validate(); err != nil {
		return answer, err
	}
	d := &decider{s: s, batch: driver.Batch{Budget: c.Budget, Now: c.Now, Limits: c.Limits}, head: c.Head, walks: map[walkKey]*walk{}}
	err = d.repeat(ctx, func(conn *conn) error { return d.importRows(conn, c, &answer) })
	return answer, err
}

// importRows continues with an import until it is done or the steps run out. It adds the
// rows once the totals are up to date, and replays the buckets after the last rows.
func (d *decider) importRows(c *conn, r driver.Import, answer *driver.Imported) (err error) {
	d.steps, d.done = d.s.steps, false
	if answer.Now, err = d.open(c); err != nil {
		return err
	}
	l := d.l
	if r.Head.At > d.when.later+driver.ClockTolerance {
		return fmt.Errorf("%w: the export is of %d µs, the clock shows %d", driver.ErrClock, r.Head.At, d.when.later)
	}
	current, err := d.advance(l.last)
	if err != nil || !current {
		return errors.Join(err, d.close())
	}
	done, noted := l.imports.Rows(r.Export)
	upto := r.From + int64(len(r.Rows))
	if answer.Done = max(done, upto); done < r.From {
		answer.Done = done
	}
	if d.done = done < r.From || noted && done >= upto; d.done {
		return d.close()
	}
	l.unnoted = max(l.unnoted, r.Head.Unnoted)
	for i, row := range r.Rows {
		if r.From+int64(i) >= done {
			if err := d.importRow(row, r.Head, answer); err != nil {
				return err
			}
		}
	}
	for _, k := range r.Head.Locks {
		if !noted && k.Until > max(l.last, l.locks[k.Limit].until) {
			if err := l.putLock(k.Limit, lock{until: k.Until, since: k.Since, why: k.Why}, l.last); err != nil {
				return err
			}
		}
	}
	l.imports.Note(r.Export, answer.Done)
	for _, m := range l.meters {
		switch {
		case r.Last: // the next transaction replays it from the entries
			if err := l.dropMeter(m); err != nil {
				return err
			}
		case m.reached != toTheEnd:
			l.replayAnew(m)
		}
	}
	l.walkNo++ // walks under way may have passed the added rows
	l.idleAt = 0
	if err := d.expireAdded(); err != nil {
		return err
	}
	d.done = !r.Last
	return d.close()
}

// importRow adds one row, or counts it as known or gone.
func (d *decider) importRow(r driver.Row, head driver.LedgerHead, answer *driver.Imported) error {
	l := d.l
	if r.State == driver.RowHistory {
		return l.importHistory(r)
	}
	if r.Score <= max(l.gone, l.horizon(l.last)) {
		answer.Gone++
		return nil
	}
	e, err := l.entryOf(r, driver.OwnID(r.ID, l.id))
	if err != nil {
		return err
	}
	old, err := l.entryAt(e.id)
	if err == nil && old != nil && old.score > l.gone && r.State != driver.RowMerged && !old.is(e) {
		e.id = driver.OtherID(r.ID, head)
		old, err = l.entryAt(e.id)
	}
	switch {
	case err != nil:
		return err
	case old == nil || old.score <= l.gone:
	case r.Pseudo() && (e.units > old.units || e.calls > old.calls || e.score > old.score):
		e.units, e.calls, e.score = max(e.units, old.units), max(e.calls, old.calls), max(e.score, old.score)
		e.asked, e.start, e.lane = e.units, e.score, laneOf(e.operation(), e.units, e.state)
	case old.state == stateOpen && (e.state == stateSettled || e.state == stateReleased):
	default:
		answer.Known++
		return nil
	}
	if old != nil {
		if err := l.remove(old); err != nil {
			return err
		}
	}
	if err := l.insert(e); err != nil {
		return err
	}
	if err := l.dropLarge(e.lane, e.score); err != nil {
		return err
	}
	answer.Added++
	if l.historyKept < 0 {
		l.unnoted = max(l.unnoted, e.start)
	}
	switch number, own := strings.CutPrefix(e.id, " "); {
	case e.state != stateMerged:
		l.merged = min(l.merged, e.score-1)
		if e.start > l.newest && e.id == r.ID {
			l.newest, l.newestID = e.start, e.id
		}
	case own:
		n, _ := strconv.ParseInt(number, 10, 64) // else 0: another ledger merged it
		l.rowNo = max(l.rowNo, n)
	}
	return nil
}

// entryOf converts a row to an entry of the ledger.
func (l *ledger) entryOf(r driver.Row, id string) (*entry, error) {
	op, err := l.number(r.Operation, r.Labels.Job)
	if err != nil {
		return nil, err
	}
	state := slices.Index(rowStates[:], r.State)
	e := &entry{id: id, score: r.Score, start: r.Start, asked: r.Asked, units: r.Units, calls: r.Calls, state: int64(state), observed: r.Observed}
	e.lane = laneOf(op, e.units, e.state)
	return e, l.label(e, r.Labels, l.last)
}

// is reports whether two entries of one id are the same charge.
func (e *entry) is(other *entry) bool {
	return e.operation() == other.operation() && e.asked == other.asked && (e.state == statePlain) == (other.state == statePlain)
}
