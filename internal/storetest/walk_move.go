package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// ledgerCopy is an exported ledger.
type ledgerCopy struct {
	head driver.LedgerHead
	rows []driver.Row
}

func (c *ledgerCopy) Head(head driver.LedgerHead) error {
	c.head = head
	return nil
}

func (c *ledgerCopy) Row(row driver.Row) error {
	c.rows = append(c.rows, row)
	return nil
}

// copyOf exports a ledger, with its rows ordered by score.
func copyOf(store driver.Store, budget string, now int64) (c ledgerCopy, err error) {
	err = store.Export(context.Background(), driver.Export{Budget: budget, Now: now}, &c)
	slices.SortFunc(c.rows, func(a, b driver.Row) int { return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.ID, b.ID)) })
	return c, err
}

// upto returns the rows that finish at an instant or before, at most driver.MaxImport,
// and whether they are the last.
func (c *ledgerCopy) upto(score int64) (rows []driver.Row, last bool) {
	n := 0
	for n < len(c.rows) && n < driver.MaxImport && c.rows[n].Score <= score {
		n++
	}
	rows, c.rows = c.rows[:n], c.rows[n:]
	return rows, len(c.rows) == 0
}

// move exports the ledger of both and continues with a budget into which it is imported,
// part by part, with charges in between, and some parts twice.
func (w *walker) move(limits []limit.Limit) {
	w.step++
	want, wantErr := copyOf(w.model, w.budget, w.now)
	got, gotErr := copyOf(w.store, w.budget, w.now)
	locks := got.head.Locks
	w.same("export", w.budget, summary(got), gotErr, summary(want), wantErr)
	w.same("export the locks", w.budget, locks, nil, want.head.Locks, nil)
	w.same("export how far the history lacks charges", w.budget, got.head.Unnoted, nil, want.head.Unnoted, nil)
	if len(want.rows) > driver.MaxImport {
		return // rare: a part would have to end within one score
	}
	w.kept.later(w.now)
	w.budget = fmt.Sprintf("walk/%d.moved", w.step)
	w.now = max(w.now, want.head.At) // a store whose clock is far behind accepts nothing
	w.seen, w.ledgers, w.changes = nil, map[string]string{}, map[string]int64{}
	if w.rng.IntN(3) == 0 {
		w.decide(limits)
	}
	var parts []int64
	for _, row := range want.rows {
		if w.rng.IntN(len(want.rows)) < 2 {
			parts = append(parts, row.Score)
		}
	}
	from := [2]int64{}
	for _, upto := range append(parts, 1<<60) {
		wantRows, last := want.upto(upto)
		gotRows, lastGot := got.upto(upto)
		w.same("last part", upto, lastGot, nil, last, nil)
		if last && len(wantRows) == 0 && from[0] > 0 {
			break // the part before was the last
		}
		inModel := driver.Import{Budget: w.budget, Now: w.now, Limits: limits, Export: "one", Head: want.head, From: from[0], Rows: wantRows, Last: last}
		inStore := inModel
		inStore.Head, inStore.From, inStore.Rows = got.head, from[1], gotRows
		for range 1 + w.rng.IntN(2) {
			wantDone, wantErr := driver.Apply(context.Background(), w.model, inModel)
			gotDone, gotErr := driver.Apply(context.Background(), w.store, inStore)
			// A merged row of the store corresponds to several of the model's.
			w.same("import", inStore, gotDone.Now, gotErr, wantDone.Now, wantErr)
			if wantDone.Done != inModel.From+int64(len(wantRows)) || gotDone.Done != inStore.From+int64(len(gotRows)) {
				w.t.Fatalf("seed %d, step %d: imported up to row %d and %d of %+v", w.seed, w.step, wantDone.Done, gotDone.Done, inStore)
			}
		}
		from[0], from[1] = from[0]+int64(len(wantRows)), from[1]+int64(len(gotRows))
		if w.rng.IntN(3) == 0 {
			w.pass()
			w.now = max(w.now, want.head.At)
			w.decide(limits)
		}
	}
	w.counts["moved"]++
	w.look(limits)
}

// summary is what two exports of one ledger have in common: the rows with an id, sums of
// its history, without the random id of the ledger that a foreign one names, and sums of the others.
func summary(c ledgerCopy) map[string]driver.Row {
	all := map[string]driver.Row{}
	for _, r := range c.rows {
		if r.State == driver.RowHistory {
			r.ID = fmt.Sprint("history: ", r.Operation, r.Labels.Job, r.Labels.Region, r.Start)
			r.Units, r.Calls, r.AsOf = r.Units+all[r.ID].Units, r.Calls+all[r.ID].Calls, max(r.AsOf, all[r.ID].AsOf)
		}
		if r.State == driver.RowMerged && !r.Pseudo() {
			r.ID = fmt.Sprint("merged: ", r.Operation, r.Labels.Job, r.Labels.Region, r.Observed, r.Score)
			sum := all[r.ID]
			r.Units, r.Calls, r.Asked, r.Start = r.Units+sum.Units, r.Calls+sum.Calls, 0, 0
		}
		if id, foreign := foreignID(r.ID); foreign {
			r.ID = fmt.Sprint("of another ledger: ", id, r.Score)
		}
		all[r.ID] = r
	}
	return all
}

// foreignID is the id that a row has in the ledger that it comes from, if an import gave it
// the id of driver.OtherID, which names that ledger too.
func foreignID(id string) (own string, foreign bool) {
	_, own, foreign = strings.Cut(id, "/:")
	return own, foreign
}
