package limit

import (
	"errors"
	"fmt"
	"time"
)

// MaxWindow is the longest rolling window.
const MaxWindow = 366 * 24 * time.Hour

// Kind names what a limit counts over.
type Kind string

// The kinds of window.
const (
	// Rolling counts the charges in a trailing span: exactly, or in slots if the window
	// has a Precision.
	Rolling Kind = "rolling"
	// CalendarKind counts the charges since a calendar's last reset.
	CalendarKind Kind = "calendar"
	// Bucket is a meter that charges fill and that drains at a rate.
	Bucket Kind = "bucket"
	// Concurrent counts open reservations. It is kept as a rolling window of length 0:
	// while a reservation is open, its score is its lease's end.
	Concurrent Kind = "concurrent"
)

// Window is what a limit counts over.
type Window struct {
	Kind Kind
	// Length of a rolling window in µs: (t−Length, t] counts at t.
	Length int64
	// Precision of a coarse rolling window in µs, up to its Length; 0: exact. A charge
	// that finishes in a slot (kP, (k+1)P] counts until Length after the slot's end.
	Precision int64
	// Calendar is set for calendar windows.
	Calendar *Calendar
	// Guard in µs: a charge that finishes that close to a calendar's reset counts in the
	// periods on both sides of it.
	Guard int64
	// Refill is the rate at which a bucket drains.
	Refill Refill
	// Next: at an instant it counts what a calendar will count after its next reset.
	Next bool
}

// AfterReset is the calendar window that counts what w will count after its next reset.
func (w Window) AfterReset() Window {
	w.Next = true
	return w
}

// The bounds of Precision and Guard in µs.
const (
	MinPrecision int64 = 1_000
	MaxGuard     int64 = 300_000_000
)

// RollingWindow is a trailing window of d, at least 1 µs.
func RollingWindow(d time.Duration) Window {
	return Window{Kind: Rolling, Length: d.Microseconds()}
}

// CoarseWindow is a trailing window of d, counted in slots of precision.
func CoarseWindow(d, precision time.Duration) Window {
	return Window{Kind: Rolling, Length: d.Microseconds(), Precision: precision.Microseconds()}
}

// CalendarWindow counts since the calendar's last reset.
func CalendarWindow(c *Calendar) Window { return Window{Kind: CalendarKind, Calendar: c} }

// BucketWindow is a meter that drains at a rate.
func BucketWindow(refill Refill) Window { return Window{Kind: Bucket, Refill: refill} }

// ConcurrentWindow counts open reservations.
func ConcurrentWindow() Window { return Window{Kind: Concurrent} }

// Key is the window's shape: windows with the same key share their totals. It contains no
// spaces, commas, semicolons or '|'. It is empty for a bucket, which has a meter of its
// own: see [Limit.Meter].
//
// "r:LENGTH" and "r:LENGTH:PRECISION" are rolling ("r:0" open reservations),
// "c:PERIOD:ZONE:STARTS:GUARD" calendars, with ":next" for what counts after the reset;
// all in µs.
func (w Window) Key() string {
	switch {
	case w.Kind == CalendarKind && w.Next:
		return w.Calendar.key() + ":" + formatInt(w.Guard) + ":next"
	case w.Kind == CalendarKind:
		return w.Calendar.key() + ":" + formatInt(w.Guard)
	case w.Kind == Bucket:
		return ""
	case w.Precision > 0:
		return "r:" + formatInt(w.Length) + ":" + formatInt(w.Precision)
	}
	return "r:" + formatInt(w.Length)
}

// Brief reports whether the window is full again so soon that it says little of what a budget
// has left: a bucket, open reservations, or a window below a minute.
func (w Window) Brief() bool {
	return w.Kind == Bucket || w.Kind == Concurrent || w.Kind == Rolling && w.Length < time.Minute.Microseconds()
}

// Longest is an upper bound in µs of how long a charge counts after its finish;
// 0 for a bucket: see [Limit.Longest].
func (w Window) Longest() int64 {
	if w.Kind == CalendarKind {
		return w.Calendar.longest() + 2*w.Guard
	}
	return w.Length + w.Precision
}

// Shortest is a lower bound in µs of how long a charge counts, or of a calendar's period; 0
// for a bucket and for a limit on open reservations.
func (w Window) Shortest() int64 {
	if w.Kind == CalendarKind {
		return w.Calendar.shortest()
	}
	return w.Length
}

// Cut is the last instant (µs) whose charges no longer count at now. It is not defined
// for a bucket.
func (w Window) Cut(now int64) int64 {
	switch {
	case w.Kind == CalendarKind:
		start, next := w.Calendar.Period(now - w.Guard)
		if w.Next {
			start = next
		}
		return start - w.Guard - 1
	case w.Precision > 0:
		return now - w.Length - floorMod(now-w.Length, w.Precision)
	}
	return now - w.Length
}

// Span is the time around an instant during which a calendar's Cut stays the same: from ≤
// at < until, in µs. It changes only when the guard after a reset has passed: until then
// a charge still counts in the old period too. The new period needs no check of its own
// then, because it contains no more than the old one.
func (w Window) Span(at int64) (from, until int64) {
	from, until = w.Calendar.Period(at - w.Guard)
	return from + w.Guard, until + w.Guard
}

// InGuard reports whether an instant is in the guard after a calendar's reset, in which the
// period before still counts: began is the reset, and until the end of the guard, in µs.
func (w Window) InGuard(at int64) (began, until int64, yes bool) {
	if w.Kind != CalendarKind || w.Guard == 0 {
		return 0, 0, false
	}
	began, _ = w.Calendar.Period(at)
	until = began + w.Guard
	return began, until, at < until
}

// Returns is the first instant (µs) at which a charge that finished at score no longer
// counts. It is not defined for a bucket.
func (w Window) Returns(score int64) int64 {
	switch {
	case w.Kind == CalendarKind:
		_, next := w.Calendar.Period(score + w.Guard)
		return next + w.Guard
	case w.Precision > 0:
		return SlotEnd(score, w.Precision) + w.Length
	}
	return score + w.Length
}

// SlotEnd is the end of the slot (kP, (k+1)P] that contains the instant score.
func SlotEnd(score, precision int64) int64 {
	return score + floorMod(-score, precision)
}

func (w Window) validate() error {
	switch w.Kind {
	case Rolling:
		if w.Length < 1 || w.Precision != 0 && (w.Precision < MinPrecision || w.Precision > w.Length) {
			return fmt.Errorf("a rolling window of %d µs in slots of %d: use 1 or more, and 0 or %d to its length", w.Length, w.Precision, MinPrecision)
		}
	case CalendarKind:
		if w.Calendar == nil || w.Guard < 0 || w.Guard > MaxGuard {
			return fmt.Errorf("a calendar %v with a guard of %d µs: use NewCalendar, and 0 to %d", w.Calendar, w.Guard, MaxGuard)
		}
	case Bucket:
		if w.Refill.amount < 1 {
			return errors.New("a bucket without a rate: use NewRefill")
		}
	case Concurrent:
	default:
		return fmt.Errorf("a window of kind %q: use RollingWindow, CoarseWindow, CalendarWindow, BucketWindow or ConcurrentWindow", w.Kind)
	}
	return nil
}
