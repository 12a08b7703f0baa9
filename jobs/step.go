package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// onTime is how late a tick may be taken without being overdue.
const onTime = time.Minute

// overdueUpTo is the last instant whose tick is overdue.
func overdueUpTo(now time.Time) time.Time { return now.Add(-onTime - time.Microsecond) }

// claimant is a daemon that visits a job, and what it may do.
type claimant struct {
	holder string            // the unique name of the claim that it would make
	hold   time.Duration     // how long that claim is valid
	since  time.Time         // when it began to follow the job's schedule
	known  time.Time         // when it began to follow the job, by any schedule
	reap   map[string]reaped // the claims that may be recorded as lost, by holder
	// catchUp: a caught-up pass may begin.
	catchUp bool
	// deferredTick and deferredPart are those of the deferred pass that may go on: the
	// daemon has found that its units are there. 0: none.
	deferredTick int64
	deferredPart int
}

// stepped is the result of a step.
type stepped struct {
	claim   *claim // the new claim; nil: none
	changed bool
	records []Record
	ids     []string // of the records
	// wantsCatchUp: a tick waits to be caught up, and could begin.
	wantsCatchUp bool
}

// step does what is due for a job: it records dead claims as lost, accounts for the ticks
// that have come, and claims at most one pass. Only this function decides what happens to
// a tick; if two daemons step at once, the swap of the state lets one of them succeed.
func (j *Job) step(s *state, at clocks, me claimant) stepped {
	var done stepped
	if own := s.claimOf(me.holder); own != nil { // the answer to the claim was lost
		done.claim = own
		return done
	}
	j.reap(s, at, me, &done)
	if j.StartedBy == StartedByCron {
		j.judge(s, at, &done)
		done.changed = done.changed || len(done.records) > 0
		return done
	}
	due := j.account(s, at, me, &done)
	done.changed = done.changed || len(due) > 0
	j.expire(s, at, &done)
	j.dropDeferred(s, at, &done)
	for _, tick := range due {
		s.Until = tick.UnixMicro()
		if done.claim = j.take(s, tick, len(due), at, me, &done); done.claim != nil {
			break // the next step handles the others
		}
	}
	if done.claim == nil && j.free(s) {
		done.claim = j.next(s, at, me, &done)
	}
	if done.claim == nil && j.free(s) {
		done.claim = j.goOn(s, at, me)
	}
	done.changed = done.changed || done.claim != nil || len(done.records) > 0
	return done
}

// take handles a tick that is on time, one of so many: it is claimed, waits, or is
// skipped. There are several if the daemon was held up.
func (j *Job) take(s *state, tick time.Time, of int, at clocks, me claimant, done *stepped) *claim {
	switch {
	case s.Pause != nil:
		done.skip(tick, ReasonPaused, pausedText(*s.Pause))
	case j.inLine(s), j.CatchUp == CatchUpAll && of > 1:
		s.Waiting = append(s.Waiting, waiting{tick.UnixMicro(), CaughtUp})
		s.shorten(j.CatchUpLimit, at, done)
	case j.free(s):
		return s.claim(claim{Tick: tick.UnixMicro(), Kind: Scheduled, Budget: j.Budget}, at, me)
	case j.Overlap == Queue && !slices.ContainsFunc(s.Waiting, isQueued):
		s.Waiting = append(s.Waiting, waiting{tick.UnixMicro(), Queued})
	default:
		done.skip(tick, ReasonOverlap, overlapText(s.Active[0]))
	}
	return nil
}

// free reports whether a pass of the job may begin.
func (j *Job) free(s *state) bool { return len(s.Active) == 0 || j.Overlap == Allow }

// inLine reports whether a due tick must wait for earlier ticks that are caught up.
func (j *Job) inLine(s *state) bool {
	return j.CatchUp == CatchUpAll && slices.ContainsFunc(s.Waiting, isCaughtUp)
}

func isQueued(w waiting) bool   { return w.Kind == Queued }
func isCaughtUp(w waiting) bool { return w.Kind == CaughtUp }

// next claims what waits: first what a person asked for, then a tick that an earlier pass
// delayed, then a tick to catch up.
func (j *Job) next(s *state, at clocks, me claimant, done *stepped) *claim {
	for len(s.Requests) > 0 {
		asked := s.Requests[0]
		s.Requests = slices.Delete(s.Requests, 0, 1)
		tick, free := j.freeSecond(at.wall, s.manualBefore(at))
		if !free {
			done.record("request/"+asked.ID, Record{
				Tick: Instant{at.wall.Truncate(time.Second)}, Kind: Triggered, Outcome: Failed, Reason: ReasonTick, Error: errNoSecond.Error(),
				Request: asked.ID, Note: asked.text(), Runs: []Run{},
			})
			continue
		}
		s.LastManual = tick.UnixMicro()
		return s.claim(claim{Tick: tick.UnixMicro(), Kind: Triggered, Budget: j.Budget, Request: &asked}, at, me)
	}
	if s.Pause != nil {
		return nil
	}
	take := func(i int) *claim {
		w := s.Waiting[i]
		s.Waiting = slices.Delete(s.Waiting, i, i+1)
		return s.claim(claim{Tick: w.Tick, Kind: w.Kind, Budget: j.Budget}, at, me)
	}
	if i := slices.IndexFunc(s.Waiting, func(w waiting) bool { return w.Kind != CaughtUp }); i >= 0 {
		return take(i)
	}
	i := slices.IndexFunc(s.Waiting, isCaughtUp)
	done.wantsCatchUp = i >= 0 && !me.catchUp
	if i < 0 || !me.catchUp {
		return nil
	}
	return take(i)
}

// manualBefore is the newest manual tick; the zero time if a wrong clock set it.
func (s *state) manualBefore(at clocks) time.Time {
	const ahead = 10 * time.Minute // each manual pass takes a second of its own, so a burst may run this far ahead
	if s.LastManual > at.store+ahead.Microseconds() {
		return time.Time{}
	}
	return time.UnixMicro(s.LastManual)
}

// claim makes a claim for a pass.
func (s *state) claim(c claim, at clocks, me claimant) *claim {
	s.Fence = max(s.Fence+1, at.now)
	c.Holder, c.Fence = me.holder, s.Fence
	c.Since, c.Until = at.wall.UnixMicro(), at.now+me.hold.Microseconds()
	if c.whole() && c.Part <= 1 {
		c.First = slices.Clone(s.First)
	}
	s.Active = append(s.Active, c)
	if c.Part <= 1 && c.Kind != Manual && c.Kind != Triggered {
		s.Recent = remember(s.Recent, c.Tick, keptRecent)
	}
	return &s.Active[len(s.Active)-1]
}

// lapsed are the claims that were not renewed in time; a claim is valid for hold.
func (s *state) lapsed(at clocks, hold time.Duration) []claim {
	var list []claim
	for _, c := range s.Active {
		if at.past(c.Until, hold) {
			c.silent = time.Duration(at.now-c.Until) * time.Microsecond
			list = append(list, c)
		}
	}
	return list
}

// reap records the dead claims as lost.
func (j *Job) reap(s *state, at clocks, me claimant, done *stepped) {
	for _, c := range s.lapsed(at, me.hold) {
		found, dead := me.reap[c.Holder]
		if !dead {
			continue
		}
		s.drop(c.Holder)
		s.Dead = remember(s.Dead, c.Fence, budget.KeptDead)
		record := c.lost(at)
		j.addSpent(&record, &c, j.OrderFrom(c.First, s.NextRegion), found.spent)
		if found.unfenced != nil {
			record.Error += fmt.Sprintf("; it was not fenced off from %s, where it may still charge: %v", c.Budget, found.unfenced)
		}
		s.ran(&c, record.Runs)
		record = c.amends(record)
		s.Last = c.merged(s, record).json()
		done.record(c.recordID(), record)
		done.changed = true
	}
}

// ran notes which regions a pass, or a part of one, has run, and with which the next pass
// begins: with those that were cut, then with the first that was not started. A region that
// was cut although the pass began with it for that reason has its turn after the others, so
// that one that needs more than there is does not keep them from theirs.
func (s *state) ran(c *claim, runs []Run) {
	if c.Outside { // its order is not ours
		return
	}
	var cut []string
	next := ""
	for i, run := range runs {
		began := !run.Started.IsZero() || run.Outcome == Lost
		switch {
		case began:
			again := i == 0 && slices.Contains(s.First, run.Region)
			if run.wasCut() && !c.whole() {
				continue // it keeps its place, if it had one
			}
			s.First = slices.DeleteFunc(s.First, func(region string) bool { return region == run.Region })
			if run.wasCut() && !again {
				cut = append(cut, run.Region)
			}
		case next == "" && run.Outcome != Failed:
			next = run.Region
		}
	}
	if len(runs) > 0 && c.whole() {
		s.First, s.NextRegion = append(cut, s.First...), next
	}
}

// begins is the region that the job's next pass begins with; empty: the first.
func (s *state) begins(j *Job) string {
	if i := slices.IndexFunc(s.First, func(region string) bool { return slices.Contains(j.Regions, region) }); i >= 0 {
		return s.First[i]
	}
	return s.NextRegion
}

// lost is the record of a pass whose daemon died, from its last progress.
func (c *claim) lost(at clocks) Record {
	record, err := readRecord(c.Progress)
	if err != nil || c.Progress == nil {
		record = Record{Runs: []Run{}}
	}
	record.Tick, record.Kind, record.Host, record.Note = InstantOf(c.Tick), c.Kind, placeOf(c.Holder), c.note()
	record.Request = c.request()
	record.Started, record.Ended = InstantOf(c.Since), Instant{at.wall}
	record.Error = fmt.Sprintf("the pass, %s, stopped renewing its claim", record.Host)
	return record
}

// overlapText says which pass is in the way.
func overlapText(c claim) string {
	return fmt.Sprintf("another pass of the job is under way, %s, for tick %s", placeOf(c.Holder), formatTick(time.UnixMicro(c.Tick)))
}

func pausedText(p Pause) string { return "paused by " + p.By + ": " + p.Note }

// record adds a record to the step's result.
func (d *stepped) record(id string, record Record) {
	d.ids, d.records = append(d.ids, id), append(d.records, record)
}

// skip records a tick for which no pass is started. Ticks that one step skips for the
// same reason share a record.
func (d *stepped) skip(tick time.Time, reason, why string) {
	if n := len(d.records) - 1; n >= 0 {
		if last := &d.records[n]; last.Outcome == Skipped && last.Reason == reason && last.Error == why {
			last.Until, last.Ticks = &Instant{tick}, max(last.Ticks, 1)+1
			return
		}
	}
	d.record(fmt.Sprintf("skipped/%d", tick.UnixMicro()), Record{
		Tick: Instant{tick}, Kind: Scheduled, Outcome: Skipped, Reason: reason, Error: why, Runs: []Run{},
	})
}

// miss records the ticks from first to last, so many, as missed.
func (d *stepped) miss(first, last time.Time, ticks int, reason string) {
	if ticks == 0 {
		return
	}
	record := Record{Tick: Instant{first}, Kind: Scheduled, Outcome: Missed, Reason: reason, Runs: []Run{}}
	if ticks > 1 {
		record.Until, record.Ticks = &Instant{last}, ticks
	}
	d.record(fmt.Sprintf("missed/%d/%s", first.UnixMicro(), reason), record)
}
