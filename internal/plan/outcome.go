package plan

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Outcome is how a pass is expected to end.
type Outcome string

// The outcomes of planned passes.
const (
	Complete   Outcome = "complete"
	Cut        Outcome = "cut"         // some of it was done when the units were gone
	NotStarted Outcome = "not_started" // the units were gone before
	Deferred   Outcome = "deferred"    // it waits for its units at the end of the plan
	Skipped    Outcome = "skipped"     // another pass is under way, or the job is paused
	Failed     Outcome = "failed"      // it asks for what can never fit, or runs out of time
)

// Pass is a pass as it is planned.
type Pass struct {
	Job, Budget string
	Tick        time.Time
	Kind        jobs.Kind
	Outcome     Outcome
	Reason      string // of a pass that is skipped or dropped
	Parts       int    // more than 1 if it was deferred and went on
	Units       int64
	// At is the instant of the first refusal that cut it, or kept it from starting; zero:
	// none did. Limit is the limit that refused, Lock for a lock of the budget or of a limit, and Short what
	// the pass still needed of it less what was left.
	At    time.Time
	Limit string
	Lock  *budget.Lock // if Limit is Lock; else nil
	Short int64
	// Runs are its regions, in their order.
	Runs []RunPlan
}

// RunPlan is what becomes of a region of a pass: Complete, Cut, NotStarted or Failed.
type RunPlan struct {
	Region  string
	Outcome Outcome
}

// Lock stands for a lock in Pass.Limit.
const Lock = "lock"

// Reset is a calendar limit's reset, and what is left of it then.
type Reset struct {
	At   int64 // µs
	Left int64
}

// noteRefusal remembers when what refused a run may end, and what the pass was short of.
func (s *simulation) noteRefusal(p *pass, no *refused) {
	p.held = p.held || no.held
	if p.returns == 0 || no.soonest < p.returns {
		p.returns = no.soonest
	}
	result := p.result
	if !result.At.IsZero() {
		return
	}
	result.At, result.Limit = instant(s.now), no.limit
	if no.lock {
		lock := lockOf(no.closed)
		result.Limit, result.Lock = Lock, &lock
	}
	var rest []driver.Need
	for _, r := range p.runs {
		if !r.over || r.cut {
			rest = append(rest, r.still()...)
		}
	}
	for _, c := range p.job.ledger.counters {
		if c.limit.Name == no.limit && !no.lock {
			held := p.job.ledger.held(c)
			left := c.limit.Bound(p.job.Floor, false) - c.used - held.used
			if len(c.limit.Shares) > 0 {
				left = min(left, c.limit.Bound(0, false)-c.used-held.used-kept(c.inForce(s.now), c.usage, held, c.limit.ShareOf(p.job.Name)))
			}
			result.Short = max(no.short, driver.AmountOf(c.limit, rest)-left) // less than nothing may be left, of a floor or after drift
			return
		}
	}
	for _, n := range rest {
		result.Short += n.Units
	}
}

// conclude sums up what a pass, or a part of it, has come to.
func (p *pass) conclude() {
	failed := false
	for _, r := range p.runs {
		failed = failed || r.failed
		p.result.note(RunPlan{r.region, r.outcome()})
	}
	switch {
	case failed:
		p.result.Outcome = Failed
	case p.returns != 0:
		p.result.Outcome = p.exhausted()
	default:
		p.result.Outcome = Complete
		if p.before && p.leftCut {
			p.result.Outcome = Cut
		} else {
			p.result.At, p.result.Limit, p.result.Short = time.Time{}, "", 0
		}
	}
}

// begins notes with which regions the job's next pass begins, as package jobs does. left is
// what the pass has left to be deferred.
func (p *pass) begins(left *deferred) {
	j, next := p.job, ""
	var cut []string
	for i, r := range p.runs {
		switch {
		case r.started != 0:
			again := i == 0 && slices.Contains(j.first, r.region)
			if r.cut && !p.whole {
				continue
			}
			j.first = without(j.first, r.region)
			if r.cut && !again && (left == nil || !slices.Contains(left.regions, r.region)) {
				cut = append(cut, r.region)
			}
		case next == "" && !r.failed:
			next = r.region
		}
	}
	if p.whole {
		j.first, j.nextRegion = append(cut, j.first...), next
	}
}

// note notes what became of a region, also if it goes on in a later part.
func (p *Pass) note(one RunPlan) {
	at := slices.IndexFunc(p.Runs, func(r RunPlan) bool { return r.Region == one.Region })
	if at < 0 {
		p.Runs = append(p.Runs, one)
		return
	}
	p.Runs[at] = one
}

func (r *run) outcome() Outcome {
	switch {
	case r.failed:
		return Failed
	case r.started == 0:
		return NotStarted
	case r.cut:
		return Cut
	}
	return Complete
}

// exhausted is the outcome of a pass that was refused.
func (p *pass) exhausted() Outcome {
	if p.started() {
		return Cut
	}
	return NotStarted
}

// started reports whether a run of the pass, or of a part of it before, has started.
func (p *pass) started() bool {
	for _, r := range p.runs {
		if r.started != 0 {
			return true
		}
	}
	return p.before
}

// knows reports whether what runs need is known well enough to be held unasked: configured, or
// learned by then.
func (j *job) knows(runs []*run) bool {
	for _, r := range runs {
		source := j.needs.Run(r.region).Source
		learned := source == needs.Learned || j.complete[r.region] >= needs.LeastRuns
		if source != needs.Configured && (!learned || j.Checkpoint > 0) {
			return false
		}
	}
	return true
}

func asAmount(n driver.Need) needs.Amount {
	return needs.Amount{Operation: n.Operation, Units: n.Units, Calls: n.Calls}
}

func asEstimate(list []driver.Need) needs.Estimate {
	e := needs.Estimate{Source: needs.Learned}
	for _, n := range list {
		e.Amounts = append(e.Amounts, asAmount(n))
	}
	e.Amounts = needs.Together(e.Amounts)
	return e
}

// together adds up what is asked of each operation.
func together(list []driver.Need) []driver.Need {
	amounts := make([]needs.Amount, len(list))
	for i, n := range list {
		amounts[i] = asAmount(n)
	}
	return asNeeds(needs.Together(amounts))
}

func without(list []string, one string) []string {
	kept := list[:0]
	for _, other := range list {
		if other != one {
			kept = append(kept, other)
		}
	}
	return kept
}

// price is what a call of an operation costs, in units: a look without an operation asks for one.
func (j *job) price(operation string) int64 {
	if operation == "" {
		return 1
	}
	return min(j.prices(operation), limit.MaxUnits)
}
