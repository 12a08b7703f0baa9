package jobs

import (
	"time"

	"github.com/quotactl/quotactl/budget"
)

// everyHour reports whether the schedule leaves no hour out.
func (s *Schedule) everyHour() bool {
	const hours = 1<<24 - 1
	return s.fields.Hour&hours == hours
}

// nextWall goes from one matching wall-clock time to the next and takes the
// instant that each stands for.
func (s *Schedule) nextWall(after time.Time) time.Time {
	for wall := s.fields.Next(wallOf(after, s.zone)); !wall.IsZero(); wall = s.fields.Next(wall) {
		if at := budget.FirstInstant(wall, s.zone); at.After(after) {
			return at.UTC()
		}
	}
	return time.Time{}
}

// nextElapsed matches the wall clock within each stretch of one offset, so
// that a shift neither repeats nor skips more than the clock does.
func (s *Schedule) nextElapsed(after time.Time) time.Time {
	const shifts = 64 // far more than a zone has within five years
	from := after
	for range shifts {
		_, offset := from.In(s.zone).Zone()
		shift := time.Duration(offset) * time.Second
		wall := s.fields.Next(wallOf(from, s.zone))
		if from != after { // a stretch's first second may tick itself
			wall = s.fields.Next(wallOf(from, s.zone).Add(-time.Second))
		}
		if wall.IsZero() {
			return time.Time{}
		}
		at := wall.Add(-shift)
		_, until := from.In(s.zone).ZoneBounds()
		if until.IsZero() || at.Before(until) {
			return at.UTC()
		}
		from = until.UTC()
	}
	return time.Time{}
}

// wallOf is the wall clock of the zone at an instant, written as if it were UTC.
func wallOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}
