package plan

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// needsLeft is what a region that was cut still needs.
type needsLeft = needs.Estimate

// resumeWork has a job go on with what is under way, waits, was asked for, or is deferred at
// the plan's start.
func (s *simulation) resumeWork(j *job, as *Job) {
	for i, active := range as.Active {
		var soFar *jobs.Record
		if i < len(as.Progress) {
			soFar = as.Progress[i]
		}
		var spent map[string]RunSpent
		if i < len(as.Spent) {
			spent = as.Spent[i]
		}
		s.goOnWith(j, active, soFar, spent)
	}
	for _, asked := range as.Requests {
		j.waiting = append(j.waiting, waitingTick{asked.At.Truncate(time.Second).UnixMicro(), jobs.Triggered, asked.Regions})
	}
	for _, w := range as.Waiting {
		j.waiting = append(j.waiting, waitingTick{tick: w.Tick.UnixMicro(), kind: w.Kind})
	}
	for _, w := range as.Overdue(as.Job) {
		tick := w.Tick.UnixMicro()
		if w.Kind == jobs.Scheduled {
			s.add(s.now+j.begins, j.order(0), func() { s.tick(j, tick) })
			continue
		}
		j.waiting = append(j.waiting, waitingTick{tick: tick, kind: w.Kind})
	}
	if len(j.waiting) > 0 {
		s.add(s.now+j.begins, j.order(1), func() { s.visit(j) })
	}
	for _, left := range as.Deferred {
		s.add(s.now, j.order(0), func() {
			before := s.newPass(j, left.Tick.UnixMicro(), jobs.Scheduled, left.Regions)
			before.whole = true // unless it was asked for some of them alone, which nothing says
			before.part, before.returns = left.Part-1, left.At.UnixMicro()
			d := &deferred{pass: before, regions: left.Regions, at: left.At.UnixMicro(), since: s.now}
			before.result.At, before.result.Outcome = instant(s.now), Deferred
			s.postpone(d)
		})
	}
}

// goOnWith goes on with a pass that was under way when the plan began: what has ended is over,
// what is under way has its needs less what it took, and the others start as they come.
func (s *simulation) goOnWith(j *job, active jobs.ActivePass, soFar *jobs.Record, spent map[string]RunSpent) {
	p := s.newPass(j, active.Tick.UnixMicro(), active.Kind, nil)
	j.active++
	p.began = active.Since.UnixMicro()
	if soFar != nil && len(soFar.Runs) > 0 {
		p.runs = nil
		order := make([]string, len(soFar.Runs))
		for i := range soFar.Runs {
			order[i] = soFar.Runs[i].Region
		}
		p.regions(order)
	} else {
		soFar = nil
	}
	p.hold = j.ledger.heldFor(j.Name, "", p.began)
	for i, r := range p.runs {
		done := &jobs.Run{}
		if soFar != nil {
			done = &soFar.Runs[i]
		}
		s.goOnRunning(p, r, done, spent)
	}
	if slices.ContainsFunc(p.runs, func(r *run) bool { return r.cut }) {
		p.returns, p.result.At = s.now, instant(s.now)
		s.stop(p)
		return
	}
	s.next(p)
}

// goOnRunning goes on with a run of such a pass. The ledger knows what it spent to the instant,
// the record only to the last heartbeat.
func (s *simulation) goOnRunning(p *pass, r *run, done *jobs.Run, spent map[string]RunSpent) {
	j := p.job
	if done.Outcome != "" {
		r.over, r.started = true, done.Started.UnixMicro()
		r.cut = done.Outcome == jobs.Exhausted
		p.result.Units += done.Units
		p.place = r.place + 1
		return
	}
	run := spent[r.region]
	if spent == nil {
		run.Amounts = done.Spent
	}
	took := run.Amounts
	r.hold = j.ledger.heldFor(j.Name, r.region, p.began)
	if done.Started.IsZero() && len(took) == 0 && r.hold == nil {
		return
	}
	if r.started = s.now; !done.Started.IsZero() {
		r.started = done.Started.UnixMicro()
	}
	takes, _ := j.expected(r.region, p.tick)
	r.holds, r.left = less(r.holds, took), steps(less(takes, took), j.call > 0)
	for _, a := range took {
		r.units += a.Units
	}
	r.spent = slices.Clone(took)
	p.running++
	j.ledger.running++
	p.place = r.place + 1
	at := s.now
	if run.Began > 0 {
		at = run.Began + j.call + j.notes
	}
	s.add(at, j.order(r.place+1), func() { s.call(p, r) })
}

// heldFor is the hold of a pass that began at an instant, or of a run of it; nil: there is none.
// No other pass gets it.
func (l *ledger) heldFor(job, region string, since int64) *hold {
	for _, h := range l.holds {
		if !h.claimed && h.job == job && h.Region == region && h.Since >= since {
			h.claimed = true
			return h
		}
	}
	return nil
}

// endOtherHolds lets holds without a pass under way end with their leases.
func (s *simulation) endOtherHolds() {
	for _, l := range s.ledgers {
		for _, h := range l.holds {
			if !h.claimed {
				s.add(h.Until, samplesFirst, func() { s.endHold(l, h) })
			}
		}
	}
}

// less is what is left of needs after a part of them was taken; nothing if more was.
func less(list []driver.Need, took []needs.Amount) []driver.Need {
	left := slices.Clone(list)
	for i := range left {
		for _, t := range took {
			if t.Operation == left[i].Operation {
				left[i].Units, left[i].Calls = max(0, left[i].Units-t.Units), max(0, left[i].Calls-t.Calls)
			}
		}
	}
	return left
}
