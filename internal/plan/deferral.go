package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// The pauses before a pass goes on that spent nothing although a look found its units, in µs.
const (
	firstPause   int64 = 60e6
	longestPause int64 = 3600e6
)

// deferred is what a pass left when the units were gone, until they return.
type deferred struct {
	pass    *pass
	regions []string
	at      int64 // when to look
	since   int64
	held    bool // others hold what it waits for
	pauses  int
}

// left is what an ended pass leaves to be deferred; nil: nothing.
func (s *simulation) left(p *pass) *deferred {
	if p.job.OnExhausted != jobs.DeferExhausted || p.returns == 0 {
		return nil
	}
	d := &deferred{pass: p, since: s.now, at: p.returns, held: p.held}
	for _, r := range p.runs {
		switch {
		case !r.failed && (r.started == 0 || r.cut && (p.job.Checkpoint > 0 || r.units == 0)):
			d.regions = append(d.regions, r.region)
		case r.cut:
			p.leftCut = true
		}
	}
	if d.regions == nil {
		return nil
	}
	spent := slices.ContainsFunc(p.runs, func(r *run) bool { return r.units > 0 })
	if p.job.Hold != jobs.HoldNone || p.part > 1 && !spent { // what it held itself is back
		switch no := s.fitsDeferred(d); {
		case no != nil:
			d.at, d.held = no.soonest, no.held
		case p.part > 1 && !spent:
			d.pauses = p.pauses + 1
			d.at = s.now + min(firstPause<<min(d.pauses-1, 10), longestPause)
		default:
			d.at = s.now
		}
	}
	return d
}

// postpone has a deferred pass wait, unless it is dropped at once.
func (s *simulation) postpone(d *deferred) {
	j := d.pass.job
	if s.drops(d) {
		j.dropped(d)
		return
	}
	d.pass.result.Outcome = Deferred
	j.deferred = append(j.deferred, d)
	j.ledger.deferred = append(j.ledger.deferred, d)
	s.resumeSoon(j.ledger, d.at)
}

// drops reports whether a deferred pass does not go on: the job's next tick has come, or it is
// too late.
func (s *simulation) drops(d *deferred) bool {
	j := d.pass.job
	next := j.Next(instant(max(d.since, d.pass.tick)))
	return !next.IsZero() && next.UnixMicro() <= s.now || s.now-d.pass.tick > j.MaxLate.Microseconds()
}

// dropDeferred drops those of a job's deferred passes that did not go on in time.
func (s *simulation) dropDeferred(j *job) {
	for _, d := range slices.Clone(j.deferred) {
		if s.drops(d) {
			j.forget(d)
			j.dropped(d)
		}
	}
}

// dropped has the job's next pass begin with what a deferred pass leaves.
func (j *job) dropped(d *deferred) {
	for _, region := range d.regions {
		if !slices.Contains(j.first, region) {
			j.first = append(j.first, region)
		}
	}
	d.pass.result.Outcome = d.pass.exhausted()
	d.pass.result.Reason = jobs.ReasonNextTick
}

func (j *job) forget(d *deferred) {
	same := func(other *deferred) bool { return other == d }
	j.deferred = slices.DeleteFunc(j.deferred, same)
	j.ledger.deferred = slices.DeleteFunc(j.ledger.deferred, same)
}

// resumeSoon looks at a budget's deferred passes at an instant. Among what happens then it comes
// as the first of the jobs whose pass is looked at.
func (s *simulation) resumeSoon(l *ledger, at int64) {
	if at = max(at, s.now); l.looking || l.looks != 0 && l.looks <= at {
		return
	}
	l.looks = at
	order := looksLast
	for _, d := range l.deferred {
		if d.at <= at {
			order = min(order, waitersLater+d.pass.job.order(len(d.pass.job.Regions)+1))
		}
	}
	s.add(at, order, func() {
		if l.looks == at {
			l.looks = 0
			s.resume(l)
		}
	})
}

// resume has the first of a budget's deferred passes go on whose units are there, in their
// order: larger guarantee, earlier tick, name.
func (s *simulation) resume(l *ledger) {
	if s.now > s.until { // what goes on after the plan is not in it
		return
	}
	for _, d := range slices.Clone(l.deferred) {
		if s.drops(d) {
			d.pass.job.forget(d)
			d.pass.job.dropped(d)
		}
	}
	list := slices.DeleteFunc(slices.Clone(l.deferred), func(d *deferred) bool { return !d.pass.job.free() })
	slices.SortFunc(list, func(a, b *deferred) int {
		x, y := a.pass.job, b.pass.job
		return cmp.Or(cmp.Compare(y.guarantee, x.guarantee), cmp.Compare(a.pass.tick, b.pass.tick), cmp.Compare(x.Name, y.Name))
	})
	if slices.ContainsFunc(list, func(d *deferred) bool { return d.at <= s.now }) {
		l.looking = true
		s.lookAt(l, list)
		return
	}
	s.resumeLater(l)
}

// lookAt looks at deferred passes in turn, until one goes on: when the instant of one has come, at
// all of them.
func (s *simulation) lookAt(l *ledger, list []*deferred) {
	const (
		slotPoll   = 500e3
		lookPause  = 250e3
		afterwards = 1 // once it has spent or holds something
	)
	for i, d := range list {
		j := d.pass.job
		if !slices.Contains(l.deferred, d) || !j.free() {
			continue
		}
		if most := j.BudgetParallel; most > 0 && l.running >= most {
			l.looking = false
			s.resumeSoon(l, s.now+slotPoll)
			return
		}
		no := s.fitsDeferred(d)
		if no == nil {
			j.forget(d)
			j.active++
			s.add(s.now+j.begins, looksLast, func() { // its claim takes a moment, in which others may take what was seen
				j.active--
				s.goOn(d)
			})
			l.looking = false
			s.resumeSoon(l, s.now+j.begins+afterwards)
			return
		}
		if d.at > s.now {
			continue
		}
		d.at, d.held = max(no.soonest, s.now+j.begins+lookPause), no.held
		if j.begins > 0 { // that is noted before the next is looked at
			s.add(s.now+j.begins, looksLast, func() { s.lookAt(l, list[i+1:]) })
			return
		}
	}
	l.looking = false
	s.resumeLater(l)
}

// resumeLater looks again when the next instant has come.
func (s *simulation) resumeLater(l *ledger) {
	for _, d := range l.deferred {
		if at := min(d.at, d.pass.tick+d.pass.job.MaxLate.Microseconds()+1); at > s.now {
			s.resumeSoon(l, at)
		}
	}
}

// fitsDeferred is why a deferred pass does not go on; nil: it does.
func (s *simulation) fitsDeferred(d *deferred) *refused {
	p, j := d.pass, d.pass.job
	if q := j.look(len(d.regions)); len(q.needs) > 0 {
		if no := j.ledger.decide(&q, s.now, &s.scratch); no != nil {
			return no
		}
	}
	of := d.regions[:1]
	if j.Hold == jobs.HoldPass {
		of = d.regions
	}
	rest := &pass{job: j, part: p.part + 1}
	rest.regions(of)
	q := j.holdsOf(rest, rest.runs)
	if j.Hold == jobs.HoldPass {
		q = &ask{job: j.Name, floor: j.Floor, span: j.span(len(of))}
		q.lasts = max(holdLease, q.span)
		for _, r := range rest.runs {
			q.needs = append(q.needs, r.holds...)
		}
		q.needs = together(q.needs)
	}
	if q == nil || len(q.needs) == 0 {
		return nil
	}
	return j.ledger.decide(q, s.now, &s.scratch)
}

// goOn begins the next part of a deferred pass.
func (s *simulation) goOn(d *deferred) {
	before := d.pass
	p := &pass{job: before.job, result: before.result, tick: before.tick, whole: before.whole, part: before.part + 1, pauses: d.pauses, before: before.started(), leftCut: before.leftCut}
	p.regions(d.regions)
	p.result.Parts = p.part
	s.begin(p)
}

// endHold gives back what is left of a hold, for which deferred passes may wait.
func (s *simulation) endHold(l *ledger, h *hold) {
	const restPoll = 250 * time.Millisecond
	if !l.endHold(h) {
		return
	}
	waits := false
	for _, d := range l.deferred {
		if d.held {
			d.at, waits = min(d.at, s.now), true
		}
	}
	if waits {
		s.resumeSoon(l, s.now+restPoll.Microseconds())
	}
}
