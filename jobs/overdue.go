package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/jobs/schedule"
)

// longestBack is how far a clock may be set back without ticks being counted again: what
// is accounted for stays so, and the job waits until the clock has caught up. A clock
// that was wrong by more must not stop the job for years.
const longestBack = 2 * time.Hour

// maxDue is more than any schedule can tick in the time for which a tick is on time.
const maxDue = int(onTime/time.Second) + 2

// account accounts for the ticks since the last time that are overdue: they are recorded
// as missed, or wait to be caught up. It returns the ticks on time, the oldest first; the
// caller decides about each and notes it in Until. Of the ticks from before this daemon
// followed the job, only the newest may be on time.
func (j *Job) account(s *state, at clocks, me claimant, done *stepped) (due []time.Time) {
	wall := at.wall
	if s.Until-at.store > longestBack.Microseconds() {
		s.Until, done.changed = wall.UnixMicro(), true
	}
	if schedule := j.counts(); s.Schedule != schedule { // first seen, or the schedule has changed
		j.leave(s, wall, me, done)
		s.Until, s.Schedule, done.changed = max(s.Until, me.since.UnixMicro()), schedule, true
	}
	from := time.UnixMicro(max(s.Until, s.begun(wall)))
	older := overdueUpTo(wall)
	if older.Before(from) {
		older = from
	}
	_, _, due = j.Schedule.Between(older, wall, maxDue)
	due = slices.DeleteFunc(due, func(tick time.Time) bool { // the clock was set back, and the tick was run before
		return slices.Contains(s.Recent, tick.UnixMicro())
	})
	early := slices.IndexFunc(due, func(tick time.Time) bool { return !tick.Before(me.known) })
	if early < 0 {
		early = len(due)
	}
	if early > 1 { // of the ticks from before this daemon followed the job, only the newest is on time
		older, due = due[early-2], due[early-1:]
	}
	if len(due) > 0 && j.CatchUp == CatchUpLast { // the last tick is among them, so none waits
		s.shorten(0, at, done)
	}
	count, first, newest := j.Schedule.Between(from, older, 1)
	if count == 0 {
		return due
	}
	s.Until, done.changed = newest[0].UnixMicro(), true
	if j.CatchUp == CatchUpNone {
		done.miss(first, newest[0], count, ReasonDown)
		return due
	}
	most := j.CatchUpLimit
	if len(due) > 0 && j.CatchUp == CatchUpLast { // the last tick is on time
		most = 0
	}
	edge := wall.Add(-j.MaxLate - time.Microsecond) // a tick exactly MaxLate old is not too late
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
	s.shorten(most, at, done)
	return due
}

// counts is the schedule and zone by which a state's ticks are counted.
func (j *Job) counts() string { return j.Schedule.String() + " " + j.Schedule.Zone().String() }

// leave accounts for the ticks of the job's previous schedule, up to when a daemon began
// to follow the new one. A daemon that was running then treats those on time as due: the
// first is run, the others are skipped. The rest are missed.
func (j *Job) leave(s *state, wall time.Time, me claimant, done *stepped) {
	at := strings.LastIndexByte(s.Schedule, ' ')
	if at < 0 {
		return // no previous schedule
	}
	before, err := schedule.Parse(s.Schedule[:at], s.Schedule[at+1:])
	if err != nil {
		return // written by another version
	}
	since := me.since
	if since.After(wall) {
		since = wall
	}
	from := time.UnixMicro(max(s.Until, s.begun(since)))
	older := overdueUpTo(wall)
	for _, edge := range []time.Time{me.known, from} {
		if older.Before(edge) {
			older = edge
		}
	}
	if older.After(since) {
		older = since
	}
	if count, first, newest := before.Between(from, older, 1); count > 0 {
		done.miss(first, newest[0], count, ReasonDown)
	}
	_, _, due := before.Between(older, since, maxDue)
	for i, tick := range due {
		switch {
		case s.Pause != nil:
			done.skip(tick, ReasonPaused, pausedText(*s.Pause))
		case i == 0 && j.free(s):
			s.Waiting = append(s.Waiting, waiting{tick.UnixMicro(), Scheduled})
		default:
			done.skip(tick, ReasonOverlap, "the job's schedule changed before this tick was started, and another tick was due")
		}
	}
}

// begun is the newest tick, up to an instant, whose pass began: all ticks before it are
// accounted for.
func (s *state) begun(wall time.Time) (newest int64) {
	for _, tick := range s.Recent {
		if tick <= wall.UnixMicro() {
			newest = max(newest, tick)
		}
	}
	return newest
}

// shorten keeps up to most of the ticks to be caught up, the newest. Of the others, those
// still on time are skipped, since newer ticks of the job take their place; the rest are
// missed.
func (s *state) shorten(most int, at clocks, done *stepped) {
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
		if at.wall.Sub(tick) <= onTime {
			done.skip(tick, ReasonOverlap, fmt.Sprintf("as many newer ticks of the job as catch_up_limit allows wait to be caught up: %d", most))
			return true
		}
		done.miss(tick, tick, 1, ReasonCatchUp)
		return true
	})
}

// expire handles ticks that have waited long: ticks that a daemon gave back and that are
// no longer on time are overdue; ticks past max_late are missed.
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
