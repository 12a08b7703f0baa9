package headroom

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// mostPeriods is how many periods are noted for a limit: as many days as the evidence for
// three full periods reaches back, and those between that had no evidence.
const mostPeriods = 40

// Notes is what hosts note for a budget and share, beside the store's history, by the
// limit's name. It is kept as JSON.
type Notes struct {
	Limits map[string]Noted `json:"limits"`
}

// Noted is what is noted of one limit.
type Noted struct {
	Since   int64  `json:"since"`   // µs: the first report; 0: there was none
	Periods []Seen `json:"periods"` // in order
}

// Seen is what was seen in a period of evidence, see [Period].
type Seen struct {
	Start    int64 `json:"start"`    // µs: when it began
	Reported bool  `json:"reported"` // the upstream said how much of the limit is used
	// InFlight is what was in flight, by host.
	InFlight map[string]int64 `json:"in_flight,omitempty"`
	// Request is the longest time from a charge to the report of its response, in µs.
	Request int64 `json:"request_us,omitempty"`
	// Clock is the least difference that any host measured between its clock and the
	// store's, in µs; nil: none did. One wrong clock of a host harms nobody, since units
	// return by the earlier of its and the store's clock, and charges count from the later.
	Clock *int64 `json:"clock_us,omitempty"`
}

// Period is the period of evidence that contains an instant: a calendar's day or month; for
// other windows a span of the window's length, but at least a day, counted from the Unix
// epoch. So a limit of an hour or less needs three days of evidence: the hours of one day say
// little of the night. All are in µs; start ≤ at < next.
func Period(w limit.Window, at int64) (start, next int64) {
	if c := w.Calendar; c != nil && (c.Length() == limit.Day || c.Length() == limit.Month) {
		return c.Period(at)
	}
	length := max(day, w.Length)
	start = at - at%length
	return start, start + length
}

// Reaches is how far back a limit's evidence may reach at most, in µs, if the upstream
// reports in each period.
func Reaches(w limit.Window) int64 {
	longest := max(day, w.Length)
	if w.Calendar != nil {
		switch w.Calendar.Length() {
		case limit.Day:
			longest = day + hour
		case limit.Month:
			longest = 31 * day
		}
	}
	return (Full+1)*longest + Span
}

// Begin is when the third full period of evidence began, counted back from the present
// period; periods is how many there are, up to Full.
func (n Noted) Begin(w limit.Window, now int64) (begin int64, periods int) {
	present, _ := Period(w, now)
	for _, s := range slices.Backward(n.Periods) {
		if s.Reported && s.Start < present && n.Since > 0 && n.Since <= s.Start {
			begin = s.Start
			if periods++; periods == Full {
				break
			}
		}
	}
	return begin, periods
}

// most is the highest that was seen in periods that end after an instant and begin before
// another.
func (n Noted) most(w limit.Window, after, before int64, what func(Seen) int64) (most int64) {
	for _, s := range n.Periods {
		if _, end := Period(w, s.Start); end > after && s.Start < before {
			most = max(most, what(s))
		}
	}
	return most
}

func (s Seen) inFlight() (sum int64) {
	for _, amount := range s.InFlight {
		sum += amount
	}
	return sum
}

func (s Seen) clock() int64 {
	if s.Clock == nil {
		return 0
	}
	return *s.Clock
}

// LongestRequest is the longest request that is noted, in µs.
func (n Noted) LongestRequest() (most int64) {
	for _, s := range n.Periods {
		most = max(most, s.Request)
	}
	return most
}

// Reported reports whether a report is noted in the period that begins at start.
func (n Noted) Reported(start int64) bool {
	return slices.ContainsFunc(n.Periods, func(s Seen) bool { return s.Start == start && s.Reported })
}

// See adds what one process saw in a period, and reports whether that changes anything. at is
// the first report, 0: there was none. In a calendar the plain charges of a host's processes
// add up, as they all come before one reset; elsewhere a host's highest counts.
func (n *Noted) See(w limit.Window, at int64, seen Seen) (changed bool) {
	place, found := slices.BinarySearchFunc(n.Periods, seen, func(a, b Seen) int {
		return int(min(1, max(-1, a.Start-b.Start)))
	})
	if !found {
		n.Periods = slices.Insert(slices.Clone(n.Periods), place, Seen{Start: seen.Start})
		changed = true
	}
	n.Periods = slices.Clone(n.Periods)
	s := &n.Periods[place]
	if seen.Reported && !s.Reported {
		s.Reported, changed = true, true
	}
	if seen.Reported && at > 0 && (n.Since == 0 || at < n.Since) {
		n.Since, changed = at, true
	}
	if seen.Request > s.Request {
		s.Request, changed = seen.Request, true
	}
	if seen.Clock != nil && (s.Clock == nil || *seen.Clock < *s.Clock) {
		s.Clock, changed = seen.Clock, true
	}
	for host, amount := range seen.InFlight {
		sum := max(s.InFlight[host], amount)
		if w.Kind == limit.CalendarKind {
			sum = min(limit.MaxUnits, s.InFlight[host]+amount)
		}
		if sum > s.InFlight[host] {
			s.InFlight = maps.Clone(s.InFlight)
			if s.InFlight == nil {
				s.InFlight = map[string]int64{}
			}
			s.InFlight[host], changed = sum, true
		}
	}
	if extra := len(n.Periods) - mostPeriods; extra > 0 {
		n.Periods = n.Periods[extra:]
	}
	return changed
}
