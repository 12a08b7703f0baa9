package budget

import (
	"strings"
	"time"
)

// Counts says what a limit adds up.
type Counts string

// What a limit may count.
const (
	CountUnits Counts = "units"
	CountCalls Counts = "calls"
)

// Limit is one bound on a budget, resolved: what may be spent over a window by
// the operations it covers.
type Limit struct {
	Name string
	// Quota is what the upstream grants and Headroom what is kept back of it;
	// both 0 for a cap of our own, which has a Limit alone.
	Quota    int64
	Headroom int64
	// Limit is what may be spent: Quota less Headroom, or the cap itself.
	Limit int64
	// OutagePart is the part of Headroom, over all hosts, that is kept for
	// spending while the store is out of reach: leave to spend headroom stops
	// short of it.
	OutagePart int64
	Counts     Counts
	Window     Window
	// Operations are names, "prefix.*" and "!name"; empty covers all.
	Operations []string
}

// CoversAll reports whether the limit covers every operation.
func (l Limit) CoversAll() bool { return len(l.Operations) == 0 }

// Covers reports whether the limit counts the operation. Names and prefixes
// are added up, exceptions ("!name") are taken off; exceptions alone are taken
// off everything.
func (l Limit) Covers(operation string) bool {
	if l.CoversAll() {
		return true
	}
	named, covered := false, false
	for _, pattern := range l.Operations {
		if except, ok := strings.CutPrefix(pattern, "!"); ok {
			if matchOperation(except, operation) {
				return false
			}
			continue
		}
		named = true
		covered = covered || matchOperation(pattern, operation)
	}
	return covered || !named
}

// CoversBeyond reports whether the limit may cover an operation that is not
// among the known. A ledger that tells no more operations apart counts further
// ones as [OtherOperation] in every limit that may cover one, so that none is
// overspent.
func (l Limit) CoversBeyond(known func(operation string) bool) bool {
	named := false
	for _, pattern := range l.Operations {
		if strings.HasPrefix(pattern, "!") {
			continue
		}
		named = true
		if !known(pattern) { // a prefix too is never an operation's name
			return true
		}
	}
	return !named
}

// matchOperation matches a name or a "prefix.*".
func matchOperation(pattern, operation string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(operation, prefix)
	}
	return pattern == operation
}

// Amount is what a call of these units counts for in this limit.
func (l Limit) Amount(units int64) int64 {
	if l.Counts == CountCalls {
		return 1
	}
	return units
}

// Bound is the highest use this limit allows after a call: the limit less the
// floor, or with leave to spend headroom the quota less the hosts' outage part
// and the floor. A floor is units, so limits that count calls have none.
func (l Limit) Bound(floor int64, useHeadroom bool) int64 {
	bound := l.Limit
	if useHeadroom && l.Quota > 0 {
		bound = l.Quota - l.OutagePart
	}
	if l.Counts == CountCalls {
		return bound
	}
	return bound - floor
}

// Remaining is what is left of the limit, 0 or more.
func (l Limit) Remaining(used int64) int64 { return max(0, l.Limit-used) }

// LeastRemaining is which of the limits that cover an operation has the least
// left, and how much: limits that count units come before those that count
// calls, the first of equals before the others. −1 when none covers it. used
// tells what the limit at an index has used.
func LeastRemaining(limits []Limit, operation string, used func(i int) int64) (limit int, left int64) {
	limit = -1
	for _, calls := range []bool{false, true} {
		for i, l := range limits {
			if (l.Counts == CountCalls) != calls || !l.Covers(operation) {
				continue
			}
			if remaining := l.Remaining(used(i)); limit < 0 || remaining < left {
				limit, left = i, remaining
			}
		}
		if limit >= 0 {
			break
		}
	}
	return limit, left
}

// Kind names the shape of a window.
type Kind string

// The kinds of window.
const (
	Rolling      Kind = "rolling"
	CalendarKind Kind = "calendar"
)

// Window is the span a limit counts over: a trailing length, or the time since
// a calendar's last reset.
type Window struct {
	Kind Kind
	// Length of a rolling window in µs: (t−Length, t] counts at t.
	Length int64
	// Calendar is set for calendar windows.
	Calendar *Calendar
}

// RollingWindow is a trailing window of d, at least 1 µs.
func RollingWindow(d time.Duration) Window {
	return Window{Kind: Rolling, Length: d.Microseconds()}
}

// CalendarWindow counts since the calendar's last reset.
func CalendarWindow(c *Calendar) Window { return Window{Kind: CalendarKind, Calendar: c} }

// Key is the window's shape: windows with the same key share their totals.
// It holds no spaces, commas or '|'.
func (w Window) Key() string {
	if w.Kind == CalendarKind {
		return w.Calendar.key()
	}
	return "r:" + formatInt(w.Length)
}

// Longest is an upper bound of the window's length in µs.
func (w Window) Longest() int64 {
	if w.Kind == CalendarKind {
		return w.Calendar.longest()
	}
	return w.Length
}

// Cut is the last instant (µs) whose charges no longer count at now.
func (w Window) Cut(now int64) int64 {
	if w.Kind == CalendarKind {
		start, _ := w.Calendar.Period(now)
		return start - 1
	}
	return now - w.Length
}

// Returns is the first instant (µs) at which a charge that finished at score
// no longer counts.
func (w Window) Returns(score int64) int64 {
	if w.Kind == CalendarKind {
		_, next := w.Calendar.Period(score)
		return next
	}
	return score + w.Length
}
