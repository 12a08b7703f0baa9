package plan

import (
	"maps"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
)

// pass is a pass, or a part of one, in fake time. Its steps are those of package jobs: regions
// in order, each once its offset has come, one of parallel is free, what it needs fits, and a
// slot of the budget is free; when one is refused, none is started after it.
type pass struct {
	job     *job
	result  *Pass
	tick    int64
	part    int
	whole   bool // all regions of the job
	began   int64
	runs    []*run
	place   int // of the next region to start
	running int
	ended   bool // no further region is started
	done    bool
	turn    int  // counts what the next region waits for: what was added for an earlier turn is void
	waiting bool // for a run to end, because of parallel
	hold    *hold
	waits   wait
	returns int64 // the first instant at which what refused a run may end; 0: none was refused
	held    bool  // a refusal was beside holds
	pauses  int   // parts in a row that ended without an instant that tells when to go on
	before  bool  // a run of a part before has started
	leftCut bool  // a run was cut that does not go on
}

func (s *simulation) newPass(j *job, tick int64, kind jobs.Kind, regions []string) *pass {
	order := j.OrderFrom(j.first, j.nextRegion)
	if regions != nil {
		order = slices.DeleteFunc(order, func(region string) bool { return !slices.Contains(regions, region) })
	}
	p := &pass{job: j, tick: tick, part: 1, whole: regions == nil, result: &Pass{Job: j.Name, Budget: j.Budget, Tick: instant(tick), Kind: kind, Parts: 1}}
	s.passes = append(s.passes, p.result)
	p.regions(order)
	return p
}

// regions are those of the pass, in order.
func (p *pass) regions(order []string) {
	for place, region := range order {
		takes, held := p.job.expected(region, p.tick)
		p.runs = append(p.runs, &run{region: region, place: place, holds: held, left: steps(takes, p.job.call > 0)})
	}
}

// asked are the regions of the pass, or of its part; nil: all.
func (p *pass) asked() (regions []string) {
	if p.whole && p.part == 1 {
		return nil
	}
	for _, r := range p.runs {
		regions = append(regions, r.region)
	}
	return regions
}

// begin begins a pass.
func (s *simulation) begin(p *pass) {
	p.job.active++
	p.job.underWay = append(p.job.underWay, p)
	p.began = s.now
	if p.part > 1 || p.result.Kind != jobs.Scheduled {
		s.record(p.job.ledger)
	}
	if p.job.Hold == jobs.HoldPass && len(p.runs) > 0 {
		s.holdPass(p)
		return
	}
	s.next(p)
}

// holdPass takes what the whole pass needs, or waits for it.
func (s *simulation) holdPass(p *pass) {
	q := ask{job: p.job.Name, floor: p.job.Floor, span: p.job.span(len(p.runs))}
	for _, r := range p.runs {
		q.needs = append(q.needs, r.holds...)
	}
	q.needs = together(q.needs)
	q.lasts = max(holdLease, q.span)
	if len(q.needs) == 0 {
		s.next(p)
		return
	}
	h, no := p.job.ledger.takeHold(&q, s.now, &s.scratch)
	if no != nil {
		s.waitForUnits(p, &p.waits, no, func() { s.holdPass(p) })
		return
	}
	p.hold = h
	s.next(p)
}

// span is how long what a hold is for may take, in µs: a pass of so many regions, or a run.
func (j *job) span(regions int) int64 {
	each := j.Timeout + j.Grace
	if j.Hold != jobs.HoldPass {
		return each.Microseconds()
	}
	parallel := regions
	if j.Parallel > 0 {
		parallel = j.Parallel
	}
	if j.BudgetParallel > 0 {
		parallel = min(parallel, j.BudgetParallel)
	}
	rounds := (regions + parallel - 1) / parallel
	return j.Stagger.Microseconds() + int64(rounds)*each.Microseconds()
}

// next has the pass's next region start once its offset has come.
func (s *simulation) next(p *pass) {
	p.turn++
	p.waits = wait{}
	if p.place == len(p.runs) {
		p.ended = true
		s.endIfDone(p)
		return
	}
	s.later(p, p.began+p.job.Offset(p.place).Microseconds(), func() { s.admit(p) })
}

// later does something for the next region of a pass, unless the pass has gone on or ended.
func (s *simulation) later(p *pass, at int64, do func()) {
	s.laterBy(p, at, p.job.order(p.place+1), do)
}

// laterBy is later at a place in the order of what happens at that instant.
func (s *simulation) laterBy(p *pass, at, order int64, do func()) {
	turn := p.turn
	s.add(at, order, func() {
		if p.turn == turn && !p.ended {
			do()
		}
	})
}

// admit looks whether what the next region needs would fit.
func (s *simulation) admit(p *pass) {
	j := p.job
	if j.Parallel > 0 && p.running >= j.Parallel {
		p.waiting = true
		return
	}
	if q := j.look(len(p.runs)); len(q.needs) > 0 && !j.byCron() {
		if no := j.ledger.decide(&q, s.now, &s.scratch); no != nil {
			s.waitForUnits(p, &p.waits, no, func() { s.admit(p) })
			return
		}
	}
	p.waits = wait{}
	s.slot(p)
}

// byCron reports whether nothing is asked before a run of the job starts but what it holds: cron
// starts each region's run by itself.
func (j *job) byCron() bool { return j.StartedBy == jobs.StartedByCron }

// look is what is asked before a run starts: whether its configured needs, or one call, fit.
func (j *job) look(regions int) ask {
	q := ask{job: j.Name, floor: j.Floor, look: true}
	for _, operation := range slices.Sorted(maps.Keys(j.Needs)) {
		calls := j.Needs[operation]
		q.needs = append(q.needs, driver.Need{Operation: operation, Units: j.price(operation) * calls, Calls: calls})
	}
	if j.Hold != jobs.HoldNone {
		q.beside = j.span(regions)
	}
	return q
}

// slot waits for one of the budget's slots.
func (s *simulation) slot(p *pass) {
	const poll = 500e3 // as the daemons do
	j := p.job
	if j.BudgetParallel > 0 && !j.byCron() && j.ledger.running >= j.BudgetParallel {
		s.later(p, s.now+poll, func() { s.slot(p) })
		return
	}
	s.holdRun(p)
}

// holdRun takes what the next region needs, if its job holds that, and starts it.
func (s *simulation) holdRun(p *pass) {
	j, r := p.job, p.runs[p.place]
	if q := j.holdsOf(p, []*run{r}); q != nil {
		h, no := j.ledger.takeHold(q, s.now, &s.scratch)
		if no != nil {
			s.waitForUnits(p, &p.waits, no, func() { s.holdRun(p) })
			return
		}
		r.hold = h
	}
	r.started = s.now
	p.running++
	j.ledger.running++
	if late := s.now - p.began - j.Offset(p.place).Microseconds(); p.part > 1 && late > 0 {
		p.began += late // the next region keeps its distance
	}
	s.add(s.now, j.order(p.place+1), func() { s.call(p, r) })
	p.place++
	s.next(p)
}

// holdsOf is what runs hold before they start; nil: nothing.
func (j *job) holdsOf(p *pass, runs []*run) *ask {
	if j.Hold != jobs.HoldRun && (j.Hold != jobs.HoldNone || p.part == 1 || !j.knows(runs)) {
		return nil
	}
	span := j.span(1)
	q := &ask{job: j.Name, floor: j.Floor, span: span, lasts: max(holdLease, span)}
	for _, r := range runs {
		q.needs = append(q.needs, r.holds...)
	}
	if q.needs = together(q.needs); len(q.needs) == 0 {
		return nil
	}
	return q
}

// endIfDone ends a pass that starts nothing more and has nothing under way.
func (s *simulation) endIfDone(p *pass) {
	if !p.ended || p.running > 0 || p.done {
		return
	}
	p.done = true
	j := p.job
	if p.hold != nil {
		s.endHold(j.ledger, p.hold)
	}
	p.conclude()
	left := s.left(p)
	p.begins(left)
	s.add(s.now+j.begins, j.order(0), func() { // then it is recorded
		j.active--
		j.underWay = slices.DeleteFunc(j.underWay, func(other *pass) bool { return other == p })
		if left != nil {
			s.postpone(left)
		}
		if len(j.ledger.deferred) > 0 {
			s.resumeSoon(j.ledger, s.now)
		}
		if p.result.Kind == jobs.CaughtUp && p.part == 1 {
			s.nextCatchUp(j.ledger)
			return
		}
		if len(j.waiting) > 0 {
			s.add(s.now+j.begins, j.order(0), func() { s.visit(j) })
		}
	})
}
