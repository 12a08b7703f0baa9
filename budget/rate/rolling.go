package rate

import (
	"cmp"
	"slices"
)

// returning is an amount that returns evenly between two instants (µs).
type returning struct {
	from, to int64
	amount   float64
}

// outruns is the instant (µs) at which a rate per µs has spent what is left of a rolling
// limit and what has returned by then; false: it does not within one window.
func (u Use) outruns(rate float64) (at int64, empty bool) {
	list := u.returns()
	instants := []int64{u.Now, u.Now + u.Limit.Window.Length}
	for _, r := range list {
		instants = append(instants, r.from, r.to)
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	left := float64(u.Left)
	for i, from := range instants[:len(instants)-1] {
		to := instants[i+1]
		if from < u.Now || from >= u.Now+u.Limit.Window.Length {
			continue
		}
		falls := rate // of what is left, per µs
		for _, r := range list {
			if r.from <= from && to <= r.to {
				falls -= r.amount / float64(r.to-r.from)
			}
		}
		span := float64(to - from)
		if falls > 0 && left <= falls*span {
			return after(from, left/falls)
		}
		left -= falls * span
	}
	return 0, false
}

// returns says when what is used returns, in order: by the hours in which it was charged,
// and evenly where these are not known. In sum it is what is used.
func (u Use) returns() (list []returning) {
	w := u.Limit.Window
	later := w.Length + w.Precision // at most one precision late
	rest := float64(u.Used)
	known := 0.0
	for _, h := range u.Hours {
		begin, end := h.Begin, min(h.Begin+hour, u.Now)
		if end+later <= u.Now || end <= begin || h.Amount <= 0 {
			continue
		}
		r := returning{max(begin+later, u.Now), end + later, float64(h.Amount)}
		r.amount *= float64(r.to-r.from) / float64(end-begin) // less what has returned
		known += r.amount
		list = append(list, r)
	}
	if known > rest { // reservations that ended since, for less, are used less
		for i := range list {
			list[i].amount *= rest / known
		}
		known = rest
	}
	if rest -= known; rest > 0 {
		from, to := max(u.Now, u.NextReturn), u.Now+later
		if older := u.First + later; len(u.Hours) > 0 && older > from {
			to = min(to, older)
		}
		if to > from {
			list = append(list, returning{from, to, rest})
		}
	}
	slices.SortFunc(list, func(a, b returning) int { return cmp.Compare(a.from, b.from) })
	return list
}
