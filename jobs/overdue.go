package jobs

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// account accounts for the ticks that have come since the last time, and returns the
// newest where it is on time: what becomes of that is the caller's. The others are
// recorded as missed, or wait to be caught up.
func (j *Job) account(s *state, at clocks, done *stepped) (due time.Time) {
	wall, schedule := at.wall, j.counts()
	switch {
	case s.Until == 0, s.Schedule != schedule: // seen for the first time, or of another schedule so far
		s.Until, s.Schedule, done.changed = wall.UnixMicro(), schedule, true
		return due
	case s.Until > at.store+budget.ClockTolerance: // of a clock that was wrong, and must not stop the job for years
		s.Until, done.changed = wall.UnixMicro(), true
		return due
	}
	from := time.UnixMicro(s.Until)
	count, first, newest := j.Schedule.Between(from, wall, 1)
	if count == 0 {
		return due
	}
	last := newest[0]
	s.Until = last.UnixMicro()
	older := wall
	if wall.Sub(last) <= onTime {
		older = last.Add(-time.Microsecond)
		if !slices.Contains(s.Recent, last.UnixMicro()) { // else the clock was set back, and it was run before
			due = last
		}
		count--
	}
	done.changed = true
	if count == 0 {
		return due
	}
	if j.CatchUp == CatchUpNone {
		_, _, newest = j.Schedule.Between(from, older, 1)
		done.miss(first, newest[0], count, ReasonDown)
		return due
	}
	most := j.CatchUpLimit
	if !due.IsZero() && j.CatchUp == CatchUpLast { // that is the last
		most = 0
	}
	edge := wall.Add(-j.MaxLate)
	if edge.After(older) {
		edge = older
	}
	if late, first, newest := j.Schedule.Between(from, edge, 1); late > 0 {
		done.miss(first, newest[0], late, ReasonLate)
	}
	if edge.Before(from) {
		edge = from
	}
	count, first, newest = j.Schedule.Between(edge, older, most)
	if len(newest) > 0 {
		older = newest[0].Add(-time.Microsecond)
	}
	if left := count - len(newest); left > 0 {
		_, _, last := j.Schedule.Between(edge, older, 1)
		done.miss(first, last[0], left, ReasonCatchUp)
	}
	for _, tick := range newest {
		s.Waiting = append(s.Waiting, waiting{tick.UnixMicro(), CaughtUp})
	}
	s.shorten(most, done)
	return due
}

// counts is the schedule that the ticks of a state are counted by.
func (j *Job) counts() string { return j.Schedule.String() + " " + j.Schedule.Zone().String() }

// shorten leaves so many ticks to be caught up, the newest.
func (s *state) shorten(most int, done *stepped) {
	count := 0
	for _, w := range s.Waiting {
		if w.Kind == CaughtUp {
			count++
		}
	}
	s.Waiting = slices.DeleteFunc(s.Waiting, func(w waiting) bool {
		if w.Kind != CaughtUp || count <= most {
			return false
		}
		count--
		tick := time.UnixMicro(w.Tick)
		done.miss(tick, tick, 1, ReasonCatchUp)
		return true
	})
}

// expire records as missed what has waited too long to be caught up.
func (j *Job) expire(s *state, at clocks, done *stepped) {
	s.Waiting = slices.DeleteFunc(s.Waiting, func(w waiting) bool {
		tick := time.UnixMicro(w.Tick)
		if w.Kind != CaughtUp || at.wall.Sub(tick) <= j.MaxLate {
			return false
		}
		done.miss(tick, tick, 1, ReasonLate)
		return true
	})
}
