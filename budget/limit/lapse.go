package limit

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// LapsesAt is the instant, in the period whose charges count at at, from which the guarantee
// of the share with an index has ended; false if it does not lapse.
func (l Limit) LapsesAt(share int, at int64) (lapses int64, ok bool) {
	lapse := l.Shares[share].Lapse
	if lapse == 0 || l.Window.Kind != CalendarKind {
		return 0, false
	}
	_, until := l.Window.Span(at)
	return until - l.Window.Guard - lapse, true
}

// Lapses are the spans of the shares' lapses, the longest first, each once: in that order
// guarantees lapse within a period.
func (l Limit) Lapses() []int64 {
	var list []int64
	for _, s := range l.Shares {
		if s.Lapse > 0 && l.Window.Kind == CalendarKind {
			list = append(list, s.Lapse)
		}
	}
	slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(b, a) })
	return slices.Compact(list)
}

// Never stands for an instant that never comes.
const Never int64 = math.MaxInt64

// Stages are the guarantees in force in a calendar's period: first those of
// [Limit.Guarantees], then, for each of [Limit.Lapses], without those that have lapsed.
func (l Limit) Stages() [][]int64 {
	full := l.Guarantees()
	list := [][]int64{full}
	for _, lapse := range l.Lapses() {
		stage := slices.Clone(full)
		for i, s := range l.Shares {
			if s.Lapse >= lapse {
				stage[i] = 0
			}
		}
		list = append(list, stage)
	}
	return list
}

// Wait is how an item waits for one limit: with it the first instant is found at which the
// item fits if nothing else happens.
type Wait struct {
	Limit Limit
	// Starts, of a divided calendar: for each of [Limit.Stages] the beginning of the
	// first period in and after which the use that is left fits under these guarantees,
	// or Never; the last one is for the bound less the floor. A period that is under
	// way begins at Now.
	Starts []int64
	// At, without Starts: the item fits from then on.
	At int64
	// Spells, of a limit with records: for each of [Limit.Spells] from when
	// on the item fits. Starts or At count only after them.
	Spells []SpellWait
	// Now is the instant of the decision, and Refused what the limit decided then.
	Now     int64
	Refused bool
	// Lease is the item's, in µs.
	Lease int64
}

// From is the first instant, from one on, at which the item fits the limit; Never if that
// is beyond its [Limit.Horizon]. It may not fit for good: a guarantee that has lapsed comes
// back with the reset.
func (w Wait) From(from int64) int64 {
	if n := len(w.Spells); n > 0 {
		if at, ok := w.whilePlanned(from); ok {
			return at
		}
		from = max(from, w.Spells[n-1].Until)
	}
	if w.Starts == nil {
		return max(w.At, from)
	}
	l, floor := w.Limit, w.Starts[len(w.Starts)-1]
	full, best := w.Starts[0], Never
	if full < Never { // from then on it fits under all guarantees
		best = max(full, floor, from)
	}
	for k, lapse := range l.Lapses() {
		begins := max(w.Starts[k+1], floor)
		if begins == Never {
			continue
		}
		first := max(begins, from)
		for at := first; at < best && at-first <= l.Horizon(); {
			began, until := l.Window.Span(at)
			reset := until - l.Window.Guard
			lapsed, end := max(began, reset-lapse, begins), until
			if until < full { // it does not fit the next period, so it must not count there
				end = reset - l.Window.Guard - w.Lease
			}
			if again := w.Refused && lapsed <= w.Now; !again && max(lapsed, from) < end {
				best = min(best, max(lapsed, from))
				break
			}
			at = until
		}
	}
	return best
}

// Idle is how a call of a share (an index; −1: none) that counts an amount waits at an instant
// for the limit while nothing of it is used.
func (l Limit) Idle(amount int64, own int, now int64) Wait {
	w := Wait{Limit: l, Now: now}
	for _, stage := range append(l.Stages(), make([]int64, len(l.Shares))) {
		sum, start := amount, now
		for i, guarantee := range stage {
			if i != own {
				sum += guarantee
			}
		}
		if sum > l.Limit {
			start = Never
		}
		w.Starts = append(w.Starts, start)
	}
	return w
}

// Horizon is how far ahead a wait for the limit is looked for, in µs: a week for hours and
// quarters, which return that often; else it holds every month, and both changes of a zone's
// clock.
func (l Limit) Horizon() int64 {
	days := int64(400)
	if l.Window.Kind == Rolling { // by then all is back, open reservations too
		return l.Window.Longest() + 3*24*time.Hour.Microseconds()
	}
	if c := l.Window.Calendar; c == nil || c.length == Hour || c.length == Quarter {
		days = 7
	}
	return days * 24 * time.Hour.Microseconds()
}

// FitsTogether is the first instant, from one on, at which the item fits all limits that it
// waits for; Never if that is beyond the longest horizon of those with lapses. It may be
// later than the last of their own first instants, because a guarantee may be back by then.
func FitsTogether(waits []Wait, from int64) int64 {
	horizon := int64(0)
	for _, w := range waits {
		if len(w.Limit.Lapses()) > 0 || w.Limit.ByRecords() {
			horizon = max(horizon, w.Limit.Horizon())
		}
	}
	for at := from; ; {
		before := at
		for _, w := range waits {
			if at = w.From(at); at == Never || at-from > horizon {
				return Never
			}
		}
		if at == before {
			return at
		}
	}
}
