package jobs

import (
	"slices"
	"strings"
	"time"
)

// longestBack is how far a clock may be set back without ticks being counted anew:
// what is accounted for stays so, and the job waits until the clock is there again.
// One that was wrong by more must not stop it for years.
const longestBack = 2 * time.Hour

// account accounts for the ticks that have come since the last time, and returns the
// newest where it is on time: what becomes of that is the caller's. The others are
// recorded as missed, or wait to be caught up.
func (j *Job) account(s *state, at clocks, me claimant, done *stepped) (due time.Time) {
	wall := at.wall
	if s.Until-at.store > longestBack.Microseconds() {
		s.Until, done.changed = wall.UnixMicro(), true
	}
	if schedule := j.counts(); s.Schedule != schedule { // seen for the first time, or of another schedule so far
		s.leave(wall, me.since, done)
		s.Until, s.Schedule, done.changed = max(s.Until, me.since.UnixMicro()), schedule, true
	}
	from := time.UnixMicro(max(s.Until, s.begun(wall)))
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
		if j.CatchUp == CatchUpLast { // it is the last: what waits is behind it
			s.shorten(0, done)
		}
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
	edge := wall.Add(-j.MaxLate - time.Microsecond) // what is as late as that is not later
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

// leave accounts for the ticks of the schedule that a job had before, which came while
// no daemon was there and until one followed the new one.
func (s *state) leave(wall, since time.Time, done *stepped) {
	at := strings.LastIndexByte(s.Schedule, ' ')
	if at < 0 {
		return // it had none
	}
	before, err := ParseSchedule(s.Schedule[:at], s.Schedule[at+1:])
	if err != nil {
		return // of another version
	}
	if since.After(wall) {
		since = wall
	}
	if count, first, newest := before.Between(time.UnixMicro(max(s.Until, s.begun(since))), since, 1); count > 0 {
		done.miss(first, newest[0], count, ReasonDown)
	}
}

// begun is the newest tick up to an instant of which a pass began: all before it are
// accounted for.
func (s *state) begun(wall time.Time) (newest int64) {
	for _, tick := range s.Recent {
		if tick <= wall.UnixMicro() {
			newest = max(newest, tick)
		}
	}
	return newest
}

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

// expire does what is due for ticks that have waited long: those that a daemon has
// given back, and that are not on time any more, are overdue; those past max_late
// are missed.
func (j *Job) expire(s *state, at clocks, done *stepped) {
	s.Waiting = slices.DeleteFunc(s.Waiting, func(w waiting) bool {
		tick := time.UnixMicro(w.Tick)
		late := at.wall.Sub(tick)
		switch {
		case w.Kind == Scheduled && late > onTime && j.CatchUp == CatchUpNone:
			done.miss(tick, tick, 1, ReasonDown)
		case late > j.MaxLate:
			done.miss(tick, tick, 1, ReasonLate)
		default:
			return false
		}
		return true
	})
	for i := range s.Waiting {
		if w := &s.Waiting[i]; w.Kind == Scheduled && at.wall.Sub(time.UnixMicro(w.Tick)) > onTime {
			w.Kind, done.changed = CaughtUp, true
		}
	}
}
