package limit

import (
	"fmt"
	"strconv"
	"time"
	_ "time/tzdata"
)

// Calendar is a window that resets by the clock of a time zone.
type Calendar struct {
	length string // 15m, hour, day, month
	zone   string
	loc    *time.Location
	starts time.Duration // after midnight; day and month only
}

// The lengths of calendar windows.
const (
	Quarter = "15m"
	Hour    = "hour"
	Day     = "day"
	Month   = "month"
)

// NewCalendar makes a calendar of length "15m", "hour", "day" or "month" in an IANA zone.
// A day or month starts the given span after local midnight (of the month's first day),
// less than 24 h. If the zone's clock skips a start, the period starts at the first
// instant after the gap; if the clock shows a start twice, the first counts. Hours and
// quarters are aligned to the zone's wall clock; one in which the zone's offset changes
// is cut there.
func NewCalendar(length, zone string, starts time.Duration) (*Calendar, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return nil, fmt.Errorf("unknown time zone %q: use an IANA name such as \"America/Los_Angeles\" or \"UTC\"", zone)
	}
	switch length {
	case Day, Month:
		if starts < 0 || starts >= 24*time.Hour {
			return nil, fmt.Errorf("starts %s: use a time of day from 00:00 to 23:59", starts)
		}
	case Quarter, Hour:
		if starts != 0 {
			return nil, fmt.Errorf("starts: only a day or a month can have a start, not %q", length)
		}
	default:
		return nil, fmt.Errorf("calendar %q: use %q, %q, %q or %q", length, Quarter, Hour, Day, Month)
	}
	return &Calendar{length: length, zone: zone, loc: loc, starts: starts}, nil
}

// Length is "15m", "hour", "day" or "month".
func (c *Calendar) Length() string { return c.length }

// Zone is the IANA name of the zone.
func (c *Calendar) Zone() string { return c.zone }

// Starts is how long after midnight a day or month starts.
func (c *Calendar) Starts() time.Duration { return c.starts }

// key is the shape: kind, length, zone and start.
func (c *Calendar) key() string {
	return "c:" + c.length + ":" + c.zone + ":" + formatInt(c.starts.Microseconds())
}

// bounds are a lower and an upper bound of a period's length in µs. For days and months they
// leave room for shifts of the zone, which may also cut an hour or a quarter below the lower
// one.
func (c *Calendar) bounds() (least, most int64) {
	between := func(least, most time.Duration) (int64, int64) { return least.Microseconds(), most.Microseconds() }
	switch c.length {
	case Quarter:
		return between(15*time.Minute, 15*time.Minute)
	case Hour:
		return between(time.Hour, time.Hour)
	case Day:
		return between(22*time.Hour, 48*time.Hour) // a zone may skip a date
	default:
		return between(27*24*time.Hour, 33*24*time.Hour)
	}
}

// longest is an upper bound of a period's length in µs.
func (c *Calendar) longest() int64 {
	_, most := c.bounds()
	return most
}

// shortest is a lower bound of a period's length in µs.
func (c *Calendar) shortest() int64 {
	least, _ := c.bounds()
	return least
}

// lapseBound says which span a lapse must be below, and why: each period must have an
// instant at which the guarantee is in force, which is after the guard.
func (w Window) lapseBound() string {
	bound, why := spanOf(w.Calendar.shortest()-w.Guard), "the length of a period"
	switch w.Calendar.length {
	case Day:
		why = "because a day on which the clocks change may be little longer"
	case Month:
		why = "because the shortest month is little longer"
	}
	if w.Guard > 0 {
		return bound + ": " + spanOf(w.Calendar.shortest()) + ", " + why + ", less the guard"
	}
	return bound + ", " + why
}

// Period is the period that contains the instant at: its start and the next period's, in
// µs; start ≤ at < next.
func (c *Calendar) Period(at int64) (start, next int64) {
	switch c.length {
	case Day:
		return c.datePeriod(at, func(date time.Time, by int) time.Time { return date.AddDate(0, 0, by) })
	case Month:
		return c.datePeriod(at, func(date time.Time, by int) time.Time {
			return time.Date(date.Year(), date.Month()+time.Month(by), 1, 0, 0, 0, 0, time.UTC)
		})
	case Hour:
		return c.clockPeriod(at, time.Hour)
	default:
		return c.clockPeriod(at, 15*time.Minute)
	}
}

// datePeriod finds the period among those that start on the dates around at.
func (c *Calendar) datePeriod(at int64, step func(date time.Time, by int) time.Time) (start, next int64) {
	local := time.UnixMicro(at).In(c.loc)
	date := step(time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC), 0)
	by := -1
	for c.startOn(step(date, by)) > at {
		by--
	}
	start = c.startOn(step(date, by))
	for {
		by++
		next = c.startOn(step(date, by))
		if next > at {
			return start, next
		}
		start = next
	}
}

// startOn is the instant at which the period of a date (given in UTC) starts.
func (c *Calendar) startOn(date time.Time) int64 {
	return firstInstant(date.Add(c.starts), c.loc).UnixMicro()
}

// firstInstant is the first instant at which the zone's wall clock shows wall (given as
// if it were UTC). If the clock skips wall, it is the instant of the skip.
func firstInstant(wall time.Time, loc *time.Location) time.Time {
	const reach = 27 * time.Hour // further than any zone's offset from UTC
	_, before := wall.Add(-reach).In(loc).Zone()
	_, after := wall.Add(reach).In(loc).Zone()
	early := wall.Add(-time.Duration(max(before, after)) * time.Second)
	late := wall.Add(-time.Duration(min(before, after)) * time.Second)
	for _, candidate := range []time.Time{early, late} {
		if _, offset := candidate.In(loc).Zone(); candidate.Add(time.Duration(offset) * time.Second).Equal(wall) {
			return candidate
		}
	}
	skip, _ := late.In(loc).ZoneBounds()
	return skip
}

// clockPeriod aligns to multiples of d on the zone's wall clock.
func (c *Calendar) clockPeriod(at int64, d time.Duration) (start, next int64) {
	t := time.UnixMicro(at).In(c.loc)
	_, offset := t.Zone()
	wall := at + int64(offset)*1e6
	length := d.Microseconds()
	start = wall - floorMod(wall, length) - int64(offset)*1e6
	next = start + length
	// For a zone that follows a rule, package time also returns bounds at the ends of the
	// year, and wrong ones on the last day of a leap year. So only a bound at which the
	// offset changes cuts a period.
	shifts := func(at time.Time) bool {
		_, there := at.Zone()
		return there != offset
	}
	from, until := t.ZoneBounds()
	if !from.IsZero() && shifts(from.Add(-time.Second)) {
		start = max(start, from.UnixMicro())
	}
	if !until.IsZero() && shifts(until) {
		next = min(next, until.UnixMicro())
	}
	return start, next
}

func floorMod(a, b int64) int64 { return ((a % b) + b) % b }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
