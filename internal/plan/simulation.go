package plan

import (
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// simulation is a plan in the making.
type simulation struct {
	events
	from    int64 // the first instant of the plan, and the last, µs
	until   int64
	jobs    []*job
	ledgers map[string]*ledger
	passes  []*Pass
	scratch []taken
}

// job is a job in fake time.
type job struct {
	*jobs.Job
	prices    func(operation string) int64
	place     int64 // among the jobs: which of those that tick together begins first
	ledger    *ledger
	needs     jobs.Needs
	high      bool                                                            // its runs take what is enough for nine of ten
	takes     func(j *jobs.Job, region string, tick time.Time) []needs.Amount // instead; nil: its needs count
	complete  map[string]int                                                  // how many of them were complete
	call      int64                                                           // how long a call takes, µs
	notes     int64                                                           // how long a daemon takes to note a page, µs
	begins    int64                                                           // how long a daemon takes to begin or to record a pass, µs
	guarantee int64                                                           // of its share, the most over the limits

	paused     bool
	first      []string
	nextRegion string
	accounted  int64 // up to when its ticks have come, µs
	active     int
	underWay   []*pass // those of active that have begun
	waiting    []waitingTick
	deferred   []*deferred
	// rest is what regions still need that were cut and keep a checkpoint.
	rest map[string]needs.Estimate
}

// waitingTick is a tick that is run as soon as no pass is under way.
type waitingTick struct {
	tick    int64
	kind    jobs.Kind
	regions []string // nil: all
}

// simulate lives the question's span, and what its passes have left after its end.
func (s *simulation) simulate(ctx context.Context) error {
	const longest = int64(48 * 3600e6) // for passes that are under way at the end
	for at := s.now; s.run(min(at, s.until+longest)) && at < s.until+longest; at += 3600e6 {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// ticks has a job's next tick come.
func (s *simulation) ticks(j *job, after time.Time) {
	tick := j.Next(after)
	if at := tick.UnixMicro(); !tick.IsZero() && at <= s.until {
		s.add(at+j.begins, j.order(0), func() {
			s.ticks(j, tick)
			s.tick(j, at)
		})
	}
}

// order sorts what happens at one instant to a job and to a region of its pass.
func (j *job) order(place int) int64 { return j.place<<20 + int64(place) }

// tick is what the daemon does when a tick comes, see jobs.(*Job).take.
func (s *simulation) tick(j *job, at int64) {
	j.accounted = at
	s.dropDeferred(j)
	queued := slices.ContainsFunc(j.waiting, func(w waitingTick) bool { return w.kind == jobs.Queued })
	behind := j.CatchUp == jobs.CatchUpAll && slices.ContainsFunc(j.waiting, func(w waitingTick) bool { return w.kind == jobs.CaughtUp })
	switch {
	case j.paused:
		s.skip(j, at, jobs.ReasonPaused)
	case behind:
		j.waiting = append(j.waiting, waitingTick{tick: at, kind: jobs.CaughtUp})
	case j.free():
		s.begin(s.newPass(j, at, jobs.Scheduled, nil))
	case j.Overlap == jobs.Queue && !queued:
		j.waiting = append(j.waiting, waitingTick{tick: at, kind: jobs.Queued})
	default:
		s.skip(j, at, jobs.ReasonOverlap)
	}
}

func (j *job) free() bool { return j.active == 0 || j.Overlap == jobs.Allow }

func (s *simulation) skip(j *job, tick int64, reason string) {
	s.passes = append(s.passes, &Pass{Job: j.Name, Budget: j.Budget, Tick: instant(tick), Outcome: Skipped, Reason: reason})
}

// visit begins what waits for the job to be free: what was asked for, then a tick that another
// pass delayed, then one to catch up: a budget has one such pass at a time.
func (s *simulation) visit(j *job) {
	if !j.free() {
		return
	}
	at := slices.IndexFunc(j.waiting, func(w waitingTick) bool { return w.kind != jobs.CaughtUp })
	if at < 0 && len(j.waiting) > 0 && !j.ledger.catchingUp {
		at, j.ledger.catchingUp = 0, true
	}
	if at < 0 {
		return
	}
	next := j.waiting[at]
	j.waiting = slices.Delete(j.waiting, at, at+1)
	s.begin(s.newPass(j, next.tick, next.kind, next.regions))
}

// nextCatchUp has the job of a budget begin whose tick has waited longest to be caught up.
func (s *simulation) nextCatchUp(l *ledger) {
	l.catchingUp = false
	var longest *job
	tick := int64(0)
	for _, j := range s.jobs {
		at := slices.IndexFunc(j.waiting, func(w waitingTick) bool { return w.kind == jobs.CaughtUp })
		if j.ledger == l && at >= 0 && j.free() && (longest == nil || j.waiting[at].tick < tick) {
			longest, tick = j, j.waiting[at].tick
		}
	}
	if longest != nil {
		s.add(s.now+longest.begins, longest.order(0), func() { s.visit(longest) })
	}
}

func instant(at int64) time.Time { return time.UnixMicro(at).UTC() }
