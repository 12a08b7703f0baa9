package storetest

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// age is how long ago something happened: about as long as windows are.
func (w *walker) age() int64 {
	length := minute
	if len(w.lengths) > 0 {
		length = w.lengths[w.rng.IntN(len(w.lengths))]
	}
	if w.rng.IntN(4) == 0 {
		return w.rng.Int64N(100)
	}
	return w.rng.Int64N(2 * length)
}

// marks are what the model and the store answered at the same time.
type marks struct{ model, store driver.Mark }

// tell keeps what both answered.
func (w *walker) tell(model, store driver.Mark) {
	if model.Ledger != "" {
		w.seen = append(w.seen, marks{model, store})
	}
}

// told is the mark that a caller passes: usually none, otherwise a recent one, sometimes
// one that never was.
func (w *walker) told() marks {
	if len(w.seen) == 0 || w.rng.IntN(3) > 0 || w.calm && w.rng.IntN(3) > 0 {
		return marks{}
	}
	m := w.seen[max(0, len(w.seen)-1-w.rng.IntN(12))]
	switch w.rng.IntN(20) {
	case 0, 1:
		m.model.ID, m.store.ID = "never", "never"
	case 2:
		m.model.Ledger, m.store.Ledger = "never", "never"
	case 3:
		m.model.Changes, m.store.Changes = m.model.Changes+1<<40, m.store.Changes+1<<40
	}
	w.counts["nothing lost"]++ // unless it was lost, which is counted once it is noticed
	return m
}

// host is one of three, or none.
func (w *walker) host() string {
	return []string{"", "0a", "1b", "2c"}[w.rng.IntN(4)]
}

// recover reports a loss to both, mostly one that did not happen.
func (w *walker) recover(limits []limit.Limit) {
	w.step++
	r := driver.Recovery{
		Budget: w.budget, Now: w.caller(), Limits: limits, At: w.now - w.age(), Host: w.host(), Hosts: w.rng.Int64N(4),
		Mark: driver.Mark{ID: "never", At: w.now - w.age()},
	}
	if w.rng.IntN(2) == 0 {
		r.OwnID = []string{"0a-1", "0a-2", "1b-1"}[w.rng.IntN(3)]
	}
	told := marks{r.Mark, r.Mark}
	if w.rng.IntN(4) == 0 {
		told = w.told()
	}
	for _, l := range limits {
		used := w.rng.Int64N(2*l.Limit + 1)
		if w.rng.IntN(4) == 0 {
			used = -1
		}
		r.Used, r.Own = append(r.Used, used), append(r.Own, max(0, w.rng.Int64N(3*l.Limit)-l.Limit))
	}
	inStore := r
	r.Mark, inStore.Mark = told.model, told.store
	if w.rng.IntN(3) == 0 && len(w.seen) > 0 {
		gone := w.seen[max(0, len(w.seen)-1-w.rng.IntN(12))]
		r.Gone, inStore.Gone = []string{"never", gone.model.Ledger}, []string{"never", gone.store.Ledger}
		w.counts["rolled back"]++
	}
	want, wantErr := driver.Apply(context.Background(), w.model, r)
	got, gotErr := driver.Apply(context.Background(), w.store, inStore)
	w.same("recover", r, got, gotErr, want, wantErr)
	w.tell(want.Mark, got.Mark)
	for _, amount := range want.Amounts {
		if amount > 0 {
			w.counts["recovered"]++
			break
		}
	}
}

// named is the store's answer with its ledger's id, changes and how long it is kept translated to
// the model's: ids are random, and each store counts changes in its own way, and keeps idle ledgers
// for its own time. It fails the walk if the
// store has one ledger for two of the model's or two for one, or if changes have
// decreased.
func (w *walker) named(got, want any) any {
	w.t.Helper()
	switch got := got.(type) {
	case driver.Decisions:
		got.Mark = w.namedMark(got.Mark, want.(driver.Decisions).Mark)
		return got
	case driver.View:
		got.Mark = w.namedMark(got.Mark, want.(driver.View).Mark)
		return got
	case driver.Recovered:
		got.Mark = w.namedMark(got.Mark, want.(driver.Recovered).Mark)
		return got
	}
	return got
}

func (w *walker) namedMark(got, want driver.Mark) driver.Mark {
	w.t.Helper()
	if got.Ledger == "" || want.Ledger == "" {
		return got
	}
	known, ok := w.ledgers[got.Ledger]
	for _, other := range w.ledgers {
		ok = ok || other == want.Ledger
	}
	if ok && known != want.Ledger {
		w.t.Fatalf("seed %d, step %d: the store's ledger %s is %s, and was %s", w.seed, w.step, got.Ledger, want.Ledger, known)
	}
	if got.Changes < w.changes[got.Ledger] {
		w.t.Fatalf("seed %d, step %d: the store's ledger %s has changed %d times, and had %d times", w.seed, w.step, got.Ledger, got.Changes, w.changes[got.Ledger])
	}
	if got.Kept < want.Kept-driver.WindowIdle { // the model's longest window
		w.t.Fatalf("seed %d, step %d: the store's ledger %s is kept up to %d, and counts up to %d", w.seed, w.step, got.Ledger, got.Kept, want.Kept-driver.WindowIdle)
	}
	got.Kept = want.Kept
	if id, foreign := foreignID(got.ID); foreign {
		if other, _ := foreignID(want.ID); other == id {
			got.ID = want.ID
		}
	}
	w.ledgers[got.Ledger], w.changes[got.Ledger] = want.Ledger, got.Changes
	got.Ledger, got.Changes = want.Ledger, want.Changes
	return got
}

// reset forgets the budget on both.
func (w *walker) reset() {
	w.step++
	change(w, driver.Reset{Budget: w.budget})
	w.counts["reset"]++
}
