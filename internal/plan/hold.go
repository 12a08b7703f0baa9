package plan

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
)

// hold is what a pass, or a run, keeps for itself.
type hold struct {
	driver.Hold
	job string
	// claimed: a pass that was under way when the plan began has it.
	claimed bool
}

// draw is what a call, or several alike, draw from the hold.
func (h *hold) draw(n driver.Need) driver.Need {
	draw := driver.Need{Operation: n.Operation}
	for _, left := range h.Left {
		if left.Operation == n.Operation {
			draw.Units, draw.Calls = min(n.Units, left.Units), min(n.Calls, left.Calls)
		}
	}
	return draw
}

// take takes what is drawn.
func (h *hold) take(draw driver.Need) {
	for i := range h.Left {
		if left := &h.Left[i]; left.Operation == draw.Operation {
			left.Units, left.Calls = left.Units-draw.Units, left.Calls-draw.Calls
		}
	}
}

// held is what all holds have left in a limit, and of it those of each share's jobs.
func (l *ledger) held(c *counter) (all usage) {
	if len(l.holds) == 0 {
		return all
	}
	all.shares = make([]int64, len(c.shares))
	for _, h := range l.holds {
		all.add(h.Amount(c.limit), c.limit.ShareOf(h.job))
	}
	return all
}

// takeHold takes a hold if it fits.
func (l *ledger) takeHold(q *ask, now int64, scratch *[]taken) (*hold, *refused) {
	if no := l.decide(q, now, scratch); no != nil {
		return nil, no
	}
	h := &hold{job: q.job, Hold: driver.Hold{Span: q.span, Left: slices.Clone(q.needs)}}
	l.holds = append(l.holds, h)
	for _, t := range *scratch {
		t.counter.note(now, l.held(t.counter).used)
	}
	return h, nil
}

// endHold gives back what is left of a hold, and reports whether that is anything.
func (l *ledger) endHold(h *hold) (left bool) {
	l.holds = slices.DeleteFunc(l.holds, func(other *hold) bool { return other == h })
	return slices.ContainsFunc(h.Left, func(n driver.Need) bool { return n.Units > 0 || n.Calls > 0 })
}
