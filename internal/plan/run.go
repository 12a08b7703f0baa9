package plan

import (
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs/needs"
)

// run is a region of a pass.
type run struct {
	region  string
	place   int
	left    []step
	holds   []driver.Need // what is held for it, if its job holds anything
	single  bool          // its calls no longer fit together, and are made one by one
	started int64         // 0: not
	over    bool
	cut     bool // it was refused, before it started or in its midst
	failed  bool // what it needs can never fit, or it ran out of time
	units   int64
	spent   []needs.Amount
	hold    *hold
	waits   wait
}

// step is so many calls of one operation at one price.
type step struct {
	operation    string
	units, calls int64 // units of each call
	chunk        int64 // how many are charged together at most
}

// chunks is how many charges a run makes at most while all of its calls fit.
const chunks = 64

// steps are the calls that needs come to. Units that no even price explains are spread.
func steps(list []driver.Need, spaced bool) (all []step) {
	for _, n := range list {
		calls := n.Calls
		if calls == 0 && n.Units > 0 {
			calls = 1
		}
		if calls == 0 {
			continue
		}
		chunk := calls
		if spaced {
			chunk = (calls + chunks - 1) / chunks
		}
		each, more := n.Units/calls, n.Units%calls
		if more > 0 {
			all = append(all, step{n.Operation, each + 1, more, chunk})
		}
		all = append(all, step{n.Operation, each, calls - more, chunk})
	}
	return all
}

// need is what so many calls of a step take.
func (s *step) need(calls int64) driver.Need {
	return driver.Need{Operation: s.operation, Units: s.units * calls, Calls: calls}
}

// still is what a run has yet to take.
func (r *run) still() []driver.Need {
	list := make([]driver.Need, 0, len(r.left))
	for i := range r.left {
		list = append(list, r.left[i].need(r.left[i].calls))
	}
	return list
}

// expected is what a run of a region is expected to take in the pass of a tick, and what is held
// for it; nothing if that is unknown.
func (j *job) expected(region string, tick int64) (takes, held []driver.Need) {
	if rest, cut := j.rest[region]; cut {
		return asNeeds(rest.Amounts), asNeeds(rest.Amounts)
	}
	e := j.needs.Run(region)
	takes, held = asNeeds(e.Middle().Amounts), asNeeds(e.Amounts)
	switch {
	case j.takes != nil:
		takes = asNeeds(j.takes(j.Job, region, instant(tick)))
	case j.high:
		takes = held
	}
	return takes, held
}

func asNeeds(amounts []needs.Amount) []driver.Need {
	list := make([]driver.Need, 0, len(amounts))
	for _, a := range amounts {
		list = append(list, driver.Need{Operation: a.Operation, Units: a.Units, Calls: a.Calls})
	}
	return list
}

// call makes the next call of a run, or several that fit together.
func (s *simulation) call(p *pass, r *run) {
	j := p.job
	if len(r.left) == 0 {
		s.endRun(p, r)
		return
	}
	next := &r.left[0]
	calls := min(next.chunk, next.calls)
	if r.single {
		calls = 1
	}
	q := ask{job: j.Name, floor: j.Floor, needs: []driver.Need{next.need(calls)}, own: r.hold}
	if q.own == nil {
		q.own = p.hold
	}
	if j.Fetch != nil {
		q.lasts = j.Timeout.Microseconds()
	}
	no := j.ledger.decide(&q, s.now, &s.scratch)
	switch {
	case no != nil && calls > 1:
		r.single = true
		s.call(p, r)
		return
	case no != nil:
		s.refused(p, r, no)
		return
	}
	r.waits = wait{}
	took := calls * j.call
	finish := s.now // a command's calls are charged, a fetch's reserved until they are answered
	if j.Fetch != nil {
		finish += took
	}
	j.ledger.take(&q, s.scratch, finish, s.now+q.lasts)
	r.took(q.needs[0])
	if next.calls -= calls; next.calls == 0 {
		r.left = r.left[1:]
	}
	took += calls * j.notes
	if len(r.left) == 0 {
		took += j.notes
	}
	if took == 0 {
		s.call(p, r)
		return
	}
	s.add(s.now+took, j.order(r.place+1), func() { s.call(p, r) })
}

// refused waits for the units of a call, or cuts its run.
func (s *simulation) refused(p *pass, r *run, no *refused) {
	j := p.job
	if r.waits.latest == 0 {
		r.waits = wait{s.now + j.MaxWait.Microseconds(), j.MaxWait.Microseconds()}
	}
	at, waits := s.waitUntil(no, &r.waits)
	switch end := r.started + j.Timeout.Microseconds(); {
	case no.never:
		r.failed = true
		s.endRun(p, r)
	case waits && at >= end:
		s.add(end, j.order(r.place+1), func() {
			r.failed = true
			s.noteRefusal(p, no)
			s.endRun(p, r)
		})
	case waits:
		s.add(at, waitersLater+j.order(r.place+1), func() { s.call(p, r) })
	default:
		r.cut = true
		s.noteRefusal(p, no)
		s.endRun(p, r)
	}
}

// took notes what a run was charged.
func (r *run) took(n driver.Need) {
	r.units += n.Units
	r.spent = append(r.spent, asAmount(n))
}

// endRun ends a run. One that was cut ends the starts of its pass.
func (s *simulation) endRun(p *pass, r *run) {
	j := p.job
	r.over = true
	p.running--
	j.ledger.running--
	p.result.Units += r.units
	if r.hold != nil {
		s.endHold(j.ledger, r.hold)
	}
	if !r.cut && !r.failed {
		j.complete[r.region]++
	}
	j.keeps(r)
	switch {
	case r.cut && !p.ended && !j.byCron():
		s.stop(p)
	case p.waiting:
		p.waiting = false
		s.later(p, s.now, func() { s.admit(p) })
	default:
		s.endIfDone(p)
	}
}

// keeps notes what a cut run has left for the next one, if its job keeps a checkpoint.
func (j *job) keeps(r *run) {
	delete(j.rest, r.region)
	if r.cut && j.Checkpoint > 0 && r.units > 0 {
		j.rest[r.region] = asEstimate(r.still())
	}
}
