package plan

import (
	"slices"
	"strings"

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

// mayNeed is what a share's jobs may still need of a limit until an instant; limit.MaxUnits if
// that is unknown.
func (s *simulation) mayNeed(l *ledger, c *counter, share *limit.Share, until int64) (sum int64) {
	var found []string
	amount := func(e needs.Estimate) int64 { return driver.AmountOf(c.limit, asNeeds(e.Amounts)) }
	for _, j := range s.jobs {
		if !share.Has(j.Name) {
			continue
		}
		if j.ledger != l {
			return limit.MaxUnits
		}
		found = append(found, j.Name)
		ticks, _, _ := j.Schedule.Between(instant(s.now), instant(until-1), 1)
		passes := int64(ticks + j.active + len(j.waiting) + len(j.deferred))
		most, known := needs.Ahead{Run: j.needs.Run, Times: 1 + int64(j.Retries), Passes: passes}.Most(j.Regions, amount)
		if !known {
			return limit.MaxUnits
		}
		sum = min(sum+min(most, limit.MaxUnits), limit.MaxUnits)
	}
	for _, pattern := range share.Jobs {
		if !strings.HasSuffix(pattern, "*") && !slices.Contains(found, pattern) {
			return limit.MaxUnits
		}
	}
	if len(found) == 0 {
		return limit.MaxUnits
	}
	return sum
}
