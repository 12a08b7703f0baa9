package linear

import "github.com/quotactl/quotactl/budget/driver"

// part is units and calls of a hold.
type part struct{ units, calls int64 }

// take is one step. As with charge, the answer may be a replay of the Op's own first attempt.
// No two Ops take one hold.
func (l ledger) take(op asked, a Answer, most int64) (bool, ledger) {
	switch {
	case l.ids[op.place].state != absent:
		return false, l
	case op.Units > most:
		return a.Result == driver.NeverFits, l
	case l.units+l.held.units+op.Units > most:
		return a.Result == driver.Refused && a.Limit == 0 && a.Remaining == l.remaining(most), l
	case a.Result != driver.Granted || a.Units != op.Units || a.At < l.taken:
		return false, l
	}
	l.taken, l.last = a.At, max(l.last, a.At)
	l.holds++
	l.held.units += op.Units
	l.held.calls += op.Calls
	if !a.Replayed && (a.Limit != 0 || a.Remaining != l.remaining(most)) {
		return false, l
	}
	return true, l.with(op.place, charged{state: living, start: a.At, part: part{op.Units, op.Calls}})
}

// end is one step. An answer that there was no hold may be to a later attempt, after one whose
// answer was lost had ended it.
func (l ledger) end(op asked, a Answer) (bool, ledger) {
	c := l.ids[op.place]
	if c.state != living {
		return a.Held == Held{}, l
	}
	if a.Held != (Held{}) && a.Held != (Held{1, c.part.units, c.part.calls}) {
		return false, l
	}
	l.holds--
	l.held.units -= c.part.units
	l.held.calls -= c.part.calls
	return true, l.with(op.place, charged{state: ended})
}

// draws is what a charge draws from its hold.
func (l ledger) draws(op asked) part {
	h := l.ids[op.hold]
	if h.state != living {
		return part{}
	}
	return part{min(op.Units, h.part.units), min(1, h.part.calls)}
}

// fits reports whether a charge fits the limit on units. A charge that draws all its units
// from its hold fits beside the used units, whatever is held.
func (l ledger) fits(op asked, draw part, most int64) bool {
	beside := op.Units - draw.units
	if beside == 0 && l.ids[op.hold].state == living {
		return l.units+op.Units <= most
	}
	return l.units+l.held.units+beside <= most
}

// hands is the ledger after a living hold has handed out a part of what it had left; a part
// below 0 goes back to it.
func (l ledger) hands(hold int, out part) ledger {
	h := l.ids[hold]
	if h.state != living || out == (part{}) {
		return l
	}
	h.part.units -= out.units
	h.part.calls -= out.calls
	l.held.units -= out.units
	l.held.calls -= out.calls
	return l.with(hold, h)
}

// remaining is what is left of the limit on units.
func (l ledger) remaining(most int64) int64 { return max(0, most-l.units-l.held.units) }
