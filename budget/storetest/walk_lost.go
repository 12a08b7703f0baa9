package storetest

import (
	"context"

	"github.com/quotactl/quotactl/budget"
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

// newest is what a caller says that it saw acknowledged: mostly nothing, else a
// charge, now and then one that never was.
func (w *walker) newest() budget.Acknowledged {
	if len(w.seen) == 0 || w.rng.IntN(3) > 0 {
		return budget.Acknowledged{}
	}
	newest := w.seen[max(0, len(w.seen)-1-w.rng.IntN(12))]
	if w.rng.IntN(8) == 0 {
		newest.ID = "never"
	}
	w.counts["nothing lost"]++ // or lost, which is counted when it shows
	return newest
}

// recover tells both of a loss, mostly one that there never was.
func (w *walker) recover(limits []budget.Limit) {
	w.step++
	r := budget.Recovery{
		Budget: w.budget, Now: w.caller(), Limits: limits, At: w.now - w.age(),
		Newest: budget.Acknowledged{ID: "never", At: w.now - w.age()},
	}
	if w.rng.IntN(4) == 0 {
		r.Newest = w.newest()
	}
	for _, l := range limits {
		used := w.rng.Int64N(2*l.Limit + 1)
		if w.rng.IntN(4) == 0 {
			used = -1
		}
		r.Used = append(r.Used, used)
	}
	want, wantErr := w.model.Recover(context.Background(), r)
	got, gotErr := w.store.Recover(context.Background(), r)
	w.same("recover", r, got, gotErr, want, wantErr)
	for _, amount := range want.Amounts {
		if amount > 0 {
			w.counts["recovered"]++
			break
		}
	}
}

// reset forgets the budget on both.
func (w *walker) reset() {
	w.step++
	want, got := w.model.Reset(context.Background(), w.budget), w.store.Reset(context.Background(), w.budget)
	w.same("reset", w.budget, nil, got, nil, want)
	w.counts["reset"]++
}
