package jobs

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/config"
)

// StartedBy says who starts a job's runs.
type StartedBy string

// The values of started_by.
const (
	StartedByDaemon StartedBy = ""     // the default: a daemon
	StartedByCron   StartedBy = "cron" // a crontab or the like, by quotactl meter --job
)

const (
	// DefaultMissedAfter is how late a run of a job that cron starts may begin and still belong
	// to its tick.
	DefaultMissedAfter = 15 * time.Minute
	// cronMaxWait is how long a call of such a run waits for its units, unless the job says:
	// some clients give up after five seconds.
	cronMaxWait = 4 * time.Second
	// cronTimeout ends such a run, unless the job says: less than a day, so that it may hold units
	// of a day.
	cronTimeout = 12 * time.Hour
)

// daemonKeys are the keys that say how a daemon starts a job's runs.
var daemonKeys = []string{
	"command", "fetch", "operation", "stagger", "parallel", "catch_up", "catch_up_limit", "max_late",
	"overlap", "on_exhausted", "retries", "retry_wait", "checkpoint", "meter", "keep_secret",
}

// startedBy reads who starts the job. It reports what means nothing beside that.
func (j *Job) startedBy(t map[string]config.Node) {
	if by, ok := t["started_by"].OneOf(string(StartedByCron)); ok {
		j.StartedBy = StartedBy(by)
	}
	if j.StartedBy != StartedByCron {
		if t["missed_after"].Exists() && !t["started_by"].Exists() {
			t["missed_after"].Fail("missed_after needs started_by = %q: a tick that no daemon takes in time is for catch_up", StartedByCron)
		}
		return
	}
	j.MissedAfter, j.MaxWait, j.Timeout, j.Overlap = DefaultMissedAfter, cronMaxWait, cronTimeout, Allow
	if d, ok := t["missed_after"].Duration(time.Second, 24*time.Hour); ok {
		j.MissedAfter = d
	}
	for _, key := range daemonKeys {
		if t[key].Exists() {
			t[key].Fail("%s says how a daemon starts job %s, but cron starts it: take %[1]s out, or started_by", key, j.Name)
		}
	}
	if zone, local := cronZone(); !local && t["schedule"].Exists() && !t["timezone"].Exists() {
		t["schedule"].Warn("job %s has no timezone, so its ticks are in UTC, but cron on this machine goes by %s: write timezone = \"Area/City\", or timezone = \"UTC\" if its crontab does too", j.Name, zone)
	}
}

// cronZone is this machine's zone as people write it; utc means that it is never off UTC.
func cronZone() (zone string, utc bool) {
	now := time.Now()
	zone, offset := now.Zone()
	_, later := now.AddDate(0, 6, 0).Zone()
	return zone, offset == 0 && later == 0
}

// grace is how long after a tick a run may begin and still belong to it: MissedAfter, but no
// more than half the time to the next tick.
func (j *Job) grace(tick time.Time) time.Duration {
	next := j.Next(tick)
	if next.IsZero() {
		return j.MissedAfter
	}
	return min(j.MissedAfter, next.Sub(tick)/2)
}

// open is the tick to which a run that begins now belongs, unless another one has it; zero:
// there is none.
func (j *Job) open(now time.Time) (tick time.Time) {
	if _, _, newest := j.Schedule.Between(now.Add(-j.MissedAfter-time.Second), now, 1); len(newest) == 1 && now.Sub(newest[0]) <= j.grace(newest[0]) {
		return newest[0]
	}
	return time.Time{}
}

// wakes is when a daemon has next to decide about a tick after an instant: when it starts the
// tick, or when a run that cron was to start is missing.
func (j *Job) wakes(after time.Time) time.Time {
	if j.StartedBy != StartedByCron {
		return j.Next(after)
	}
	tick := j.open(after)
	if tick.IsZero() {
		if tick = j.Next(after); tick.IsZero() {
			return tick
		}
	}
	return tick.Add(j.grace(tick) + time.Microsecond)
}

// judged is judge before something changes by which ticks are judged. It does nothing for a job
// that daemons start.
func (j *Job) judged(s *state, at clocks) (done stepped) {
	if j.StartedBy == StartedByCron {
		j.judge(s, at, &done)
	}
	return done
}

// missedTicks are the ticks without a run since the last one that had one.
type missedTicks struct {
	First   int64    `json:"first"` // µs
	Newest  int64    `json:"newest"`
	Ticks   int      `json:"ticks"`
	Regions []string `json:"regions,omitempty"`
}

// MissedTicks are ticks without a run.
type MissedTicks struct {
	First  Instant `json:"first"`
	Newest Instant `json:"newest"`
	Ticks  int     `json:"ticks"`
	// Regions are those without a run; empty: all.
	Regions []string `json:"regions,omitempty"`
}

// missedAt are the missed ticks at an instant, also those that no daemon has accounted for.
func (s *state) missedAt(j *Job, at clocks) *MissedTicks {
	trial := *s
	trial.Taken = maps.Clone(s.Taken)
	if s.Missed != nil {
		missed := *s.Missed
		trial.Missed = &missed
	}
	var done stepped
	if j.judge(&trial, at, &done); trial.Missed == nil {
		return nil
	}
	return &MissedTicks{InstantOf(trial.Missed.First), InstantOf(trial.Missed.Newest), trial.Missed.Ticks, trial.Missed.Regions}
}

// judge accounts for the ticks of a job that cron starts. A tick without a run is missed once
// none can belong to it any more, and skipped if the job was paused at it.
func (j *Job) judge(s *state, at clocks, done *stepped) {
	wall := at.wall
	if s.Until-at.store > longestBack.Microseconds() { // a clock was ahead
		s.Until, s.Taken, done.changed = wall.UnixMicro(), nil, true
	}
	if counts := j.counts(); s.Schedule != counts { // first seen, or the schedule has changed
		s.Until, s.Schedule, done.changed = max(s.Until, wall.UnixMicro()), counts, true
	}
	s.withdraw(at, done)
	from, edge := time.UnixMicro(s.Until), wall
	if tick := j.open(wall); !tick.IsZero() {
		edge = tick.Add(-time.Microsecond)
	}
	count, first, newest := j.Schedule.Between(from, edge, 1)
	if count == 0 {
		return
	}
	s.Until, done.changed = newest[0].UnixMicro(), true
	if lacks := j.lacks(s, first, ""); len(lacks) < len(j.Regions) { // only the first can have runs: the one after closes it
		j.closes(s, first, lacks, done)
		if count--; count == 0 {
			return
		}
		first = j.Next(first)
	}
	j.takes(s, newest[0], j.Regions)
	if s.Pause != nil && !s.Pause.At.After(newest[0]) {
		j.skipPaused(s, first, newest[0], edge, done)
		return
	}
	j.miss(s, first, newest[0], count, done)
}

// takes notes that regions have their run of a tick, or can have none any more.
func (j *Job) takes(s *state, tick time.Time, regions []string) {
	if s.Taken == nil {
		s.Taken = map[string]int64{}
	}
	for _, region := range regions {
		s.Taken[region] = max(s.Taken[region], tick.UnixMicro())
	}
}

// withdraw drops what a daemon was to start before cron did.
func (s *state) withdraw(at clocks, done *stepped) {
	const why = "the job is started by cron now: run its command"
	for _, w := range s.Waiting {
		done.skip(time.UnixMicro(w.Tick), ReasonRemoved, why)
	}
	for _, asked := range s.Requests {
		done.record("request/"+asked.ID, Record{Tick: Instant{at.wall}, Kind: Triggered, Outcome: Skipped, Reason: ReasonRemoved, Error: why, Request: asked.ID, Note: asked.text(), Runs: []Run{}})
	}
	dropped := s.dropAll(ReasonRemoved, why)
	done.records, done.ids = append(done.records, dropped.records...), append(done.ids, dropped.ids...)
	s.Waiting, s.Requests = nil, nil
}

// miss records ticks that have no run.
func (j *Job) miss(s *state, first, last time.Time, ticks int, done *stepped) {
	why := fmt.Sprintf("no run of quotactl meter --job %s is recorded that began within %s of it", j.Name, j.grace(last))
	if manual := time.UnixMicro(s.LastManual); manual.After(first) && manual.Before(j.Next(last)) {
		why += fmt.Sprintf("; one began at %s: does the crontab say what schedule says, %s?", formatTick(manual), j.counts())
	}
	done.miss(first, last, ticks, ReasonNotStarted)
	done.records[len(done.records)-1].Error = why
	if s.Missed == nil {
		s.Missed = &missedTicks{First: first.UnixMicro()}
	}
	s.Missed.Newest, s.Missed.Regions = last.UnixMicro(), nil
	s.Missed.Ticks += ticks
}

// closes records the regions that have no run of a tick of which others have one.
func (j *Job) closes(s *state, tick time.Time, regions []string, done *stepped) {
	switch {
	case len(regions) == 0:
		return
	case s.Pause != nil && !s.Pause.At.After(tick):
		done.skipRegions(tick, regions, *s.Pause)
	default:
		alone := s.Missed == nil
		j.miss(s, tick, tick, 1, done)
		done.records[len(done.records)-1].Runs = without(regions, Missed, ReasonNotStarted)
		if alone {
			s.Missed.Regions = regions
		}
	}
	j.takes(s, tick, regions)
}

// skipPaused records the ticks from first to last: those before the pause are missed.
func (j *Job) skipPaused(s *state, first, last, edge time.Time, done *stepped) {
	if count, _, before := j.Schedule.Between(first.Add(-time.Microsecond), s.Pause.At.Add(-time.Microsecond), 1); count > 0 {
		j.miss(s, first, before[0], count, done)
		first = j.Next(before[0])
	}
	count, _, _ := j.Schedule.Between(first.Add(-time.Microsecond), edge, 1)
	done.skipRegions(first, nil, *s.Pause)
	if count > 1 {
		record := &done.records[len(done.records)-1]
		record.Until, record.Ticks = &Instant{last}, count
	}
}

// skipRegions records regions of a tick at which the job was paused; nil: all of them.
func (d *stepped) skipRegions(tick time.Time, regions []string, p Pause) {
	d.record(fmt.Sprintf("skipped/%d/%s", tick.UnixMicro(), strings.Join(regions, ",")), Record{
		Tick: Instant{tick}, Kind: Scheduled, Outcome: Skipped, Reason: ReasonPaused, Error: pausedText(p), Runs: without(regions, Skipped, ReasonPaused),
	})
}

// without are the runs of regions that were not run.
func without(regions []string, outcome Outcome, reason string) []Run {
	runs := []Run{}
	for _, region := range regions {
		runs = append(runs, Run{Region: region, Outcome: outcome, Reason: reason})
	}
	return runs
}
