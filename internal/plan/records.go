package plan

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs/needs"
)

// How long a daemon's record of what shares still need lasts, and how often it is renewed, in µs.
const (
	recordLasts int64 = 240e6
	recordEvery int64 = 60e6
)

// keepRecords has a daemon write what shares whose guarantees lapse by plan still need.
func (s *simulation) keepRecords(l *ledger) {
	if !slices.ContainsFunc(l.counters, func(c *counter) bool { return c.limit.ByPlan() }) {
		return
	}
	l.byPlan = true
	var write func()
	write = func() {
		s.record(l)
		if s.now+recordEvery <= s.until {
			s.add(s.now+recordEvery, samplesFirst, write)
		}
	}
	s.add(s.now, samplesFirst, write)
}

// record writes what the shares of a budget still need, as budget.WritePlan does.
func (s *simulation) record(l *ledger) {
	if !l.byPlan {
		return
	}
	l.advance(s.now)
	for _, c := range l.counters {
		for i := range c.limit.Shares {
			if share := &c.limit.Shares[i]; share.Plan {
				until := driver.PlanUntil(c.limit, s.now)
				p := limit.Planned{Guarantee: min(s.mayNeed(l, c, share, until), limit.MaxUnits) + c.shares[i], Until: s.now + recordLasts}
				if c.limit.Window.Kind == limit.CalendarKind {
					p.Until = min(p.Until, until)
				}
				share.Planned = []limit.Planned{p}
			}
		}
	}
}

// mayNeed is what a share's jobs may still need of a limit until an instant, as daemons count
// it; limit.MaxUnits if that is unknown.
func (s *simulation) mayNeed(l *ledger, c *counter, share *limit.Share, until int64) int64 {
	sum, _, known := needs.OfShare(share, s.jobs, func(j *job) string { return j.Name }, func(j *job) (int64, bool) {
		if j.ledger != l {
			return 0, false
		}
		return s.ahead(j, until).Most(j.Regions, c.limit)
	})
	if !known {
		return limit.MaxUnits
	}
	return sum
}

// ahead are the passes that a job may still have until an instant, and those that it has under way.
func (s *simulation) ahead(j *job, until int64) needs.Ahead {
	ahead := j.Ahead(j.needs, j.accounted, instant(s.now), instant(until))
	ahead.Run = func(region string) needs.Estimate {
		e := j.needs.Run(region)
		if e.Most != nil { // a guarantee is kept for the most that a run took
			e.Amounts = e.Most
		}
		return e
	}
	for _, p := range j.underWay {
		ahead.Add(p.asked())
	}
	ahead.Passes += int64(j.active - len(j.underWay)) // that are about to go on
	for _, w := range j.waiting {
		ahead.Add(w.regions)
	}
	for _, d := range j.deferred {
		ahead.Add(d.regions)
	}
	return ahead
}
