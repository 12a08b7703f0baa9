package screen

import (
	"fmt"
	"time"
)

// Time is an instant for people, rounded up: what returns at an instant has returned at the
// time shown. A pipe gets UTC to the second; a terminal the local time, and how far away it is:
// "21:30 (in 2h5m)", "Sat 09:00 (in 14h10m)", "21:14:05 (12s ago)". It is "-" for the zero time.
func (s Screen) Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if !s.Terminal {
		return ceil(t.UTC(), time.Second).Format("2006-01-02 15:04:05Z")
	}
	return s.Clock(t) + " (" + s.Away(t) + ")"
}

// Brief is [Screen.Time] without how far away it is, for an instant that matters less.
func (s Screen) Brief(t time.Time) string {
	if !s.Terminal || t.IsZero() {
		return s.Time(t)
	}
	return s.Clock(t)
}

// Clock is an instant in the terminal's zone: to a second within an hour from now, else to a
// minute, with a day where that is another than today.
func (s Screen) Clock(t time.Time) string {
	t, now := t.In(s.Zone), s.Now.In(s.Zone)
	away := t.Sub(now)
	clock, unit := "15:04", time.Minute
	if away.Abs() < time.Hour {
		clock, unit = "15:04:05", time.Second
	}
	t = ceil(t, unit)
	const week = 6 * 24 * time.Hour
	switch {
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format(clock)
	case away.Abs() < week:
		return t.Format("Mon " + clock)
	case t.Year() == now.Year():
		return t.Format("2 Jan " + clock)
	}
	return t.Format("2 Jan 2006 " + clock)
}

// Away is how far an instant is from now: "in 14m", "3h5m ago", "now".
func (s Screen) Away(t time.Time) string {
	switch d := t.Sub(s.Now); {
	case d.Abs() < time.Second:
		return "now"
	case d > 0:
		return "in " + span(d)
	default:
		return span(-d) + " ago"
	}
}

// span is a span in its two largest units at most, rounded down.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// ceil rounds up in the time's own zone.
func ceil(t time.Time, to time.Duration) time.Time {
	whole := t.Truncate(to)
	if whole.Before(t) {
		whole = whole.Add(to)
	}
	return whole
}
