package storetest

import (
	"context"
	"maps"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// charged is a charge as the walk remembers it, whatever the ledgers forget.
type charged struct {
	row   driver.HistoryRow
	units int64
	ended bool // settled or released
}

// kept is the walk's own history: it keeps everything, and knows only what was answered.
type kept struct {
	charges map[string]*charged // the latest of each id
	sums    map[driver.HistoryRow]driver.HistoryRow
	// unsure are the rows of records that may have come too late to count anywhere.
	unsure map[driver.HistoryRow]bool
}

func newKept() kept {
	return kept{map[string]*charged{}, map[driver.HistoryRow]driver.HistoryRow{}, map[driver.HistoryRow]bool{}}
}

// add adds to a row.
func (k kept) add(row driver.HistoryRow, units, calls int64) {
	sum := k.sums[row]
	sum.Units, sum.Calls = sum.Units+units, sum.Calls+calls
	k.sums[row] = sum
}

// refused remembers a count of refusals.
func (k kept) refused(c driver.RefusalCount) {
	row := driver.HistoryRow{Hour: c.Hour, Limit: c.Limit, Operation: c.Operation, Job: c.Job}
	sum := k.sums[row]
	sum.Refused, sum.Waited = sum.Refused+c.Refused, sum.Waited+c.Waited
	k.sums[row] = sum
}

// refusals counts refusals in both.
func (w *walker) refusals(limits []limit.Limit) {
	w.step++
	batch := driver.Batch{Budget: w.budget, Now: w.now, Limits: limits}
	want, wantErr := w.model.Decide(context.Background(), batch) // so that there is a ledger
	got, gotErr := w.store.Decide(context.Background(), batch)
	w.same("empty decide", batch, got, gotErr, want, wantErr)
	r := driver.Refusals{Budget: w.budget, Now: w.now}
	for range 1 + w.rng.IntN(4) {
		r.Counts = append(r.Counts, driver.RefusalCount{
			Hour: driver.HourOf(w.now) - w.rng.Int64N(3)*hour, Operation: walkOperations[w.rng.IntN(5)], Job: []string{"", "nightly"}[w.rng.IntN(2)],
			Limit: []string{"", "l0", "l1"}[w.rng.IntN(3)], Refused: w.rng.Int64N(3), Waited: w.rng.Int64N(2),
		})
	}
	change(w, r)
	if wantErr != nil { // a clock was refused
		return
	}
	for _, c := range r.Counts {
		w.kept.refused(c)
	}
	w.counts["refusals counted"]++
}

// later makes rows of later hours unsure: an export may leave them out.
func (k kept) later(now int64) {
	for row := range k.sums {
		if row.Hour > driver.HourOf(now) {
			k.unsure[row] = true
		}
	}
}

// granted remembers a granted charge.
func (k kept) granted(item driver.Item, d driver.Decision, now int64) {
	if d.Replayed || item.DryRun {
		return
	}
	row := driver.HistoryRow{Hour: driver.HourOf(d.At), Operation: item.Operation, Job: item.Labels.Job, Region: item.Labels.Region}
	if item.Recorded && d.At+item.Lease <= now-driver.MinHeld+driver.HistoryHour {
		k.unsure[row] = true
		return
	}
	k.add(row, d.Units, 1)
	k.charges[item.ID] = &charged{row: row, units: d.Units}
}

// finished remembers how a reservation ended.
func (k kept) finished(f driver.Finish, answer driver.Finished) {
	c := k.charges[f.ID]
	switch {
	case answer.Result != driver.Settled && answer.Result != driver.Released:
	case c == nil || c.ended: // a record that may have come too late, or the same again
	case answer.Result == driver.Released:
		k.add(c.row, -c.units, -1)
		c.ended = true
	default:
		k.add(c.row, f.Units-c.units, 0)
		c.units, c.ended = f.Units, true
	}
}

// history compares what both say was charged, and both with what the walk remembers.
func (w *walker) history() {
	w.step++
	ask := driver.HistoryQuery{Budget: w.budget, Now: w.now, Hours: true, Operations: true, Jobs: true, Regions: true, Refusals: w.rng.IntN(2) == 0, Limits: true}
	if w.rng.IntN(3) == 0 {
		ask.Since = w.now - w.rng.Int64N(200*24*hour)
		ask.Hours, ask.Operations, ask.Jobs, ask.Regions = w.rng.IntN(2) == 0, w.rng.IntN(2) == 0, w.rng.IntN(2) == 0, w.rng.IntN(2) == 0
		ask.Limits = w.rng.IntN(2) == 0
	}
	want, wantErr := w.model.History(context.Background(), ask)
	got, gotErr := w.store.History(context.Background(), ask)
	wantRows, gotRows := rowsOf(want), rowsOf(got)
	want.Rows, got.Rows = nil, nil
	w.same("history", ask, got, gotErr, want, wantErr)
	w.sameRows("rows of the history", ask, gotRows, wantRows)
	if wantErr != nil || !ask.Hours || !ask.Operations || !ask.Jobs || !ask.Regions || !ask.Limits {
		return
	}
	mine := map[driver.HistoryRow]driver.HistoryRow{}
	for row, sum := range w.kept.sums {
		if !ask.Refusals {
			sum.Refused, sum.Waited = 0, 0
		}
		if row.Hour >= want.Since && row.Hour <= driver.HourOf(w.now) && sum != (driver.HistoryRow{}) {
			mine[row] = sum
		}
	}
	// Later hours are shown or not, as the ledger's newest entry is.
	maps.DeleteFunc(gotRows, func(row, _ driver.HistoryRow) bool { return row.Pseudo() || row.Hour > driver.HourOf(w.now) })
	for row := range w.kept.unsure {
		delete(mine, row)
		delete(gotRows, row)
	}
	w.sameRows("history beside what was answered", ask, gotRows, mine)
	w.counts["history"]++
}

// sameRows fails the walk with the rows that differ.
func (w *walker) sameRows(what string, ask driver.HistoryQuery, got, want map[driver.HistoryRow]driver.HistoryRow) {
	w.t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for row, sum := range want {
		if got[row] == sum {
			delete(got, row)
			delete(want, row)
		}
	}
	w.t.Fatalf("seed %d, step %d, %s at %d: asked %+v:\n  got %+v\n want %+v", w.seed, w.step, what, w.now, ask, got, want)
}

// rowsOf are the rows by all that names them.
func rowsOf(h driver.History) map[driver.HistoryRow]driver.HistoryRow {
	rows := map[driver.HistoryRow]driver.HistoryRow{}
	for _, row := range h.Rows {
		sum := driver.HistoryRow{Units: row.Units, Calls: row.Calls, Refused: row.Refused, Waited: row.Waited}
		row.Units, row.Calls, row.Refused, row.Waited = 0, 0, 0, 0
		rows[row] = sum
	}
	return rows
}
