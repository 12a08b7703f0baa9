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
		s.add(s.now, j.order(0), func() { s.goOnWith(j, active, soFar) })
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
			before.part, before.returns = left.Part-1, left.At.UnixMicro()
			d := &deferred{pass: before, regions: left.Regions, at: left.At.UnixMicro(), since: s.now}
			before.result.At, before.result.Outcome = instant(s.now), Deferred
			s.postpone(d)
		})
	}
}

// goOnWith is a pass that was under way when the plan began: what has ended is over, what is
// under way has its needs less what it took, and the others start as they come.
func (s *simulation) goOnWith(j *job, active jobs.ActivePass, soFar *jobs.Record) {
	p := s.newPass(j, active.Tick.UnixMicro(), active.Kind, nil)
	j.active++
	p.began = active.Since.UnixMicro()
	if soFar == nil || len(soFar.Runs) == 0 {
		s.next(p)
		return
	}
	p.runs = nil
	order := make([]string, len(soFar.Runs))
	for i := range soFar.Runs {
		order[i] = soFar.Runs[i].Region
	}
	p.regions(order)
	for i := range soFar.Runs {
		done, r := &soFar.Runs[i], p.runs[i]
		switch {
		case done.Outcome != "":
			r.over, r.started = true, done.Started.UnixMicro()
			r.cut = done.Outcome == jobs.Exhausted
			p.result.Units += done.Units
			p.place = i + 1
		case !done.Started.IsZero():
			p.result.Units += done.Units
			r.started = done.Started.UnixMicro()
			takes, _ := j.expected(r.region)
			r.holds, r.left = less(r.holds, done.Spent), steps(less(takes, done.Spent), j.call > 0)
			p.running++
			j.ledger.running++
			p.place = i + 1
			s.add(s.now, j.order(r.place+1), func() { s.call(p, r) })
		}
	}
	if slices.ContainsFunc(p.runs, func(r *run) bool { return r.cut }) {
		p.returns, p.result.At = s.now, instant(s.now)
		s.stop(p)
		return
	}
	s.next(p)
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
