package storetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// limitName is the name of one of the limits, or of none.
func (w *walker) limitName(limits []limit.Limit) string {
	if w.rng.IntN(3) == 0 {
		return ""
	}
	return limits[w.rng.IntN(len(limits))].Name
}

// fence is the name of one of two fences: with more, hardly an item would meet one.
func (w *walker) fence() string { return fmt.Sprint("~job/", 1+w.rng.IntN(2)) }

// locks locks, mostly something that is already locked, or unlocks it, and sets or
// removes a fence.
func (w *walker) locks(limits []limit.Limit) {
	w.lock(w.fence(), w.rng.IntN(8) == 0)
	name := w.limitName(limits)
	w.lock(name, w.rng.IntN(8) == 0)
	for w.rng.IntN(2) == 0 {
		w.lock(name, w.rng.IntN(2) == 0)
	}
}

// lock locks or unlocks on both.
func (w *walker) lock(name string, unlock bool) {
	w.step++
	if unlock {
		r := driver.Unlock{Budget: w.budget, Now: w.caller(), Limit: name}
		if change(w, r).Stood {
			w.counts["unlocked"]++
		}
		return
	}
	r := driver.Lock{
		Budget: w.budget, Now: w.caller(), Limit: name, Most: 1 + w.rng.Int64N(2*hour),
		Why: fmt.Sprint("rule ", w.step), Force: w.rng.IntN(4) == 0,
	}
	if w.calm {
		r.Most = 1 + w.rng.Int64N(second)
	}
	if w.rng.IntN(2) == 0 {
		r.Until = w.now + w.age() - minute/2
	} else {
		r.After = 1 + w.age()
	}
	if change(w, r).Stood {
		w.counts["lock stood"]++
	}
}

// report reports to both what an upstream counts: in a random limit, or in one of the kind
// in which the fewest reports found drift so far.
func (w *walker) report(limits []limit.Limit) {
	w.step++
	found := func(l limit.Limit) int { return w.counts["drift of "+kindOf(l.Window)] }
	l := limits[w.rng.IntN(len(limits))]
	if w.rng.IntN(4) > 0 {
		l = slices.MinFunc(limits, func(a, b limit.Limit) int { return cmp.Compare(found(a), found(b)) })
	}
	r := driver.Report{Budget: w.budget, Now: w.caller(), Limits: limits, Limit: l.Name, Used: w.rng.Int64N(2*l.Limit + 1)}
	if w.rng.IntN(3) > 0 {
		r.At = w.now - w.age()/4
	}
	if w.rng.IntN(3) == 0 {
		r.Seen = w.rng.Int64N(l.Limit + 1)
	}
	switch w.rng.IntN(3) {
	case 0:
		r.Reset = w.now + w.age() - minute/2
	case 1:
		r.After = 1 + w.age()
	}
	if change(w, r).Added > 0 {
		w.counts["drift of "+kindOf(l.Window)]++
	}
}
