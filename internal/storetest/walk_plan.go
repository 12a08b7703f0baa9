package storetest

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// plans writes a record of one of three daemons on both: of the shares that lapse by plan, or
// of none. Records end soon, and daemons disagree.
func (w *walker) plans(limits []limit.Limit) {
	w.step++
	c := driver.PlanChange{Budget: w.budget, Now: w.caller(), Writer: []string{"a", "b", "c"}[w.rng.IntN(3)]}
	for _, l := range limits {
		for i, s := range l.Shares {
			if !s.Plan || w.rng.IntN(4) == 0 {
				continue
			}
			until := w.now + 1 + w.rng.Int64N([]int64{2, second, 5 * minute, 20 * minute}[w.rng.IntN(4)])
			p := limit.Planned{Guarantee: w.rng.Int64N(2 + s.Guarantee*5/4), Until: until}
			if w.rng.IntN(3) == 0 {
				p.Guarantee = 0
			}
			c.Shares = append(c.Shares, driver.PlannedShare{Key: l.PlanKey(i), Planned: p})
			w.planned = append(w.planned, min(until, w.now+limit.MaxPlanned))
			w.lengths = append(w.lengths, until-w.now)
		}
	}
	if w.rng.IntN(2) == 0 { // another daemon knows of less need, for longer
		less := driver.PlanChange{Budget: c.Budget, Now: c.Now, Writer: "d"}
		for _, s := range c.Shares {
			s.Guarantee, s.Until = 0, s.Until+1+w.rng.Int64N(4*minute)
			less.Shares = append(less.Shares, s)
		}
		change(w, less)
	}
	if len(w.lengths) > 24 {
		w.lengths = slices.Delete(w.lengths, 0, len(w.lengths)-24)
	}
	if change(w, c); len(c.Shares) > 0 {
		w.counts["planned"]++
	}
}
