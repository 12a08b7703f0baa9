package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Hold says which needs are held before anything starts, so that it is not cut for want of
// units.
type Hold string

// The values of hold.
const (
	HoldNone Hold = ""     // nothing is held
	HoldPass Hold = "pass" // true in the configuration: those of all regions of a pass
	HoldRun  Hold = "run"  // those of each region, before it starts
)

// holdsPause is how long to wait where too many holds live.
const holdsPause = 2 * time.Second

// held is what the pass holds, or its runs.
type held struct {
	mu      sync.Mutex      // guards all below; no store is asked while it is locked
	regions map[string]bool // for which something is held; the empty one is the whole pass
	changes int             // of regions
	warned  bool
	// unended are those whose hold could not be ended, or may have been made although that is
	// not known: this is tried again at each heartbeat.
	unended map[string]bool
}

// change notes whether something is held for a region, and reports whether that is new.
func (h *held) change(region string, holds bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regions[region] == holds {
		return false
	}
	if h.regions == nil {
		h.regions = map[string]bool{}
	}
	h.changes++
	if h.regions[region] = holds; !holds {
		delete(h.regions, region)
	}
	return true
}

// noteEnd notes whether the hold of a region was ended.
func (h *held) noteEnd(region string, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ended {
		delete(h.unended, region)
		return
	}
	if h.unended == nil {
		h.unended = map[string]bool{}
	}
	h.unended[region] = true
}

// count is how many holds there are, and how often that has changed.
func (h *held) count() (count, changes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.regions), h.changes
}

// holds is what the pass holds. One that goes on holds at least what each run needs, if that
// is known: else each of those that go on after a reset would see the units that the others
// are about to spend.
func (p *pass) holds() Hold {
	if p.job.Hold == HoldNone && p.held.claim.Part > 1 {
		return HoldRun
	}
	return p.job.Hold
}

// unaskedHolds is how many holds of a budget may live for one more to be made that no job's
// configuration asks for: the others are for those that do.
const unaskedHolds = driver.MaxHolds / 2

// hold holds what regions need until endHold: those of the whole pass for an empty region.
// It waits for units for at most the job's StartWait, and for the store for storePatience. With
// an ending nothing is held.
func (p *pass) hold(region string, of []string, over context.Context) *ending {
	asked, end := p.runner.needsOf(p.hard, p.job, of, p.held.claim.before())
	if end != nil || len(asked) == 0 {
		return end
	}
	if p.job.Hold == HoldNone {
		if status, err := p.budget.Status(p.hard); err != nil || status.Holds >= unaskedHolds {
			return nil
		}
	}
	as := budget.Call{Fence: p.held.claim.Fence, Labels: budget.Labels{Job: p.job.Name, Region: region}}
	without, unknown := false, false
	end = p.waitForUnits(region, over, func() error {
		_, err := p.budget.Hold(p.hard, as, asked, p.job.span(p.regions, p.once), p.runner.docs.hold())
		unknown = err != nil && (unknown || errors.Is(err, budget.ErrUnavailable) || p.hard.Err() != nil)
		if without = p.job.goesWithout(err); without {
			return nil
		}
		return err
	})
	if unknown {
		p.giveBackHold(region)
	}
	if end != nil || without {
		return p.job.holdEnding(end)
	}
	p.unreached = time.Time{}
	p.holding.change(region, true)
	p.held.claim.spends() // others need not wait for its first charge
	return nil
}

// holdEnding is the ending of a pass or a run whose needs could not be held.
func (j *Job) holdEnding(end *ending) *ending {
	if end != nil && j.Hold != HoldNone && (end.outcome == Exhausted || end.outcome == Failed && end.reason == ReasonNeverFits) {
		end.reason = ReasonHold
	}
	return end
}

// needsOf is what a pass of these regions needs, or what it still needs after the parts of
// it that were run so far. For a job that holds nothing it is what a part that goes on holds:
// needs that are configured, or learned unless a run that is cut keeps what it has; else none.
func (r *Runner) needsOf(ctx context.Context, j *Job, regions []string, soFar Record) ([]budget.Need, *ending) {
	found, err := j.readNeeds(ctx, r.docs.state)
	expected := found.after(j, soFar).Pass(regions)
	known := expected.Source == needs.Configured || expected.Source == needs.Learned && j.Checkpoint == 0
	switch {
	case j.Hold == HoldNone && (err != nil || !known || len(expected.Amounts) > driver.MaxNeeds):
		return nil, nil
	case err != nil:
		return nil, storeEnding(ctx, fmt.Errorf("read what job %s needs: %w", j.Name, err))
	case expected.Source == needs.Unknown:
		return nil, failed(ReasonHold, fmt.Errorf("job %s holds what it needs, but that is not known: give it needs, or its fetch max_pages", j.Name))
	case len(expected.Amounts) > driver.MaxNeeds:
		return nil, failed(ReasonHold, fmt.Errorf("job %s needs units for %d operations: at most %d can be held; name the costly ones in its needs", j.Name, len(expected.Amounts), driver.MaxNeeds))
	}
	list := make([]budget.Need, len(expected.Amounts))
	for i, a := range expected.Amounts {
		list[i] = budget.Need{Operation: a.Operation, Units: a.Units, Calls: a.Calls}
	}
	return list, nil
}

// renewHolds renews what the pass holds, with its claim, and ends what could not be ended.
func (p *pass) renewHolds(ctx context.Context) {
	h := &p.holding
	h.mu.Lock()
	unended := slices.Collect(maps.Keys(h.unended))
	h.mu.Unlock()
	for _, region := range unended {
		p.giveBackHold(region)
	}
	count, before := h.count()
	if count == 0 {
		return
	}
	list, err := p.budget.RenewHolds(ctx, p.job.Name, p.held.claim.Fence, p.runner.docs.hold())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		p.log.Warn("what the pass holds was not renewed; trying again", "tick", formatTick(p.tick), "error", err)
	case len(list) < count && h.changes == before && !h.warned:
		h.warned = true
		p.log.Warn("the store no longer holds what the pass needs: from now on its charges must fit like any others", "tick", formatTick(p.tick))
	}
}

// endHold gives back what is left of what a region holds, or the whole pass, if anything.
func (p *pass) endHold(region string) {
	if p.holding.change(region, false) { // before the hold ends, so that no renewal misses it
		p.giveBackHold(region)
	}
}

// giveBackHold ends the hold of a region, if there is one. If that fails, the next heartbeat
// tries again; after the last, what is left comes back when the hold's lease ends.
func (p *pass) giveBackHold(region string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.hard), claimTimeout)
	defer cancel()
	left, err := p.budget.EndHold(ctx, p.job.Name, p.held.claim.Fence, region)
	p.holding.noteEnd(region, err == nil)
	if err != nil {
		p.log.Warn("what the pass has not spent of what it held was not given back; it comes back when the hold's lease ends", "region", region, "tick", formatTick(p.tick), "lease", p.runner.docs.hold(), "error", err)
	}
	if slices.ContainsFunc(left, func(n budget.Need) bool { return n.Units > 0 || n.Calls > 0 }) {
		p.runner.announceHoldEnd(p.hard, p.job.Budget)
	}
}

// span is how long what a hold is for may take: a pass of so many regions, or a run.
func (j *Job) span(regions int, once bool) time.Duration {
	each := j.Timeout + j.Grace
	if j.Hold != HoldPass {
		return each
	}
	parallel := regions
	switch {
	case j.Parallel > 0:
		parallel = j.Parallel
	case once:
		parallel = 1
	}
	if j.BudgetParallel > 0 {
		parallel = min(parallel, j.BudgetParallel)
	}
	return j.Stagger + time.Duration((regions+parallel-1)/parallel)*each
}

// look checks whether what a run needs to start would fit now: of a job that holds what it
// needs, only in the limits in which a hold for span does not count.
func (j *Job) look(ctx context.Context, in *budget.Budget, span time.Duration) error {
	as := budget.Call{Floor: j.Floor, Labels: budget.Labels{Job: j.Name}}
	if j.Hold == HoldNone {
		return in.Room(ctx, j.Needs, as)
	}
	return in.RoomBeside(ctx, j.Needs, as, span)
}

// look checks whether what the regions of a job need would fit now: what a run needs to
// start, and what a pass of them would hold after the parts of it that were run so far.
func (r *Runner) look(ctx context.Context, j *Job, regions []string, soFar Record, in *budget.Budget) error {
	regions = slices.DeleteFunc(slices.Clone(regions), func(region string) bool { return !slices.Contains(j.Regions, region) })
	if len(regions) == 0 { // then the next step drops the pass
		return nil
	}
	span := j.span(len(regions), false)
	if err := j.look(ctx, in, span); err != nil {
		return err
	}
	if j.Hold != HoldPass {
		regions = regions[:1]
	}
	asked, end := r.needsOf(ctx, j, regions, soFar)
	switch {
	case end != nil:
		return end
	case len(asked) == 0:
		return nil
	}
	err := in.WouldHold(ctx, budget.Call{Labels: budget.Labels{Job: j.Name}}, asked, span, r.docs.hold())
	if j.goesWithout(err) {
		return nil
	}
	return err
}

// goesWithout reports whether a run starts although what it needs could not be held: nobody
// asked for that, and it is not that the units are not there.
func (j *Job) goesWithout(err error) bool {
	if err == nil || j.Hold != HoldNone {
		return false
	}
	for _, waits := range []error{budget.ErrExhausted, budget.ErrLocked, budget.ErrRecovering, budget.ErrFenced} {
		if errors.Is(err, waits) {
			return false
		}
	}
	return true
}

// hold reads whether a job holds its needs, which must be known and fit.
func (l *loader) hold(node config.Node, j *Job, upstream config.Upstream, known bool) {
	switch {
	case !node.Exists():
		return
	case node.IsText():
		if value, _ := node.Text(); value != string(HoldRun) {
			node.Fail("hold = %q: write true for a whole pass, or %q for each of its runs", value, HoldRun)
			return
		}
		j.Hold = HoldRun
	default:
		if on, ok := node.Bool(); !ok || !on {
			return
		}
		if j.Hold = HoldPass; j.StartedBy == StartedByCron { // which starts each run by itself
			j.Hold = HoldRun
		}
	}
	if !known || j.Regions == nil {
		return
	}
	each := j.stated
	if each == nil {
		each = j.bound
	}
	if each == nil {
		node.Fail("job %s cannot hold what it needs, which is not known: write needs = { \"operation\" = calls of a run }, or max_pages in its fetch", j.Name)
		return
	}
	runs := 1
	if j.Hold == HoldPass {
		runs = len(j.Regions)
	}
	j.checkHold(node, each, runs, upstream)
}

// checkHold reports a hold that can never be made.
func (j *Job) checkHold(node config.Node, each []needs.Amount, runs int, upstream config.Upstream) {
	if len(each) > driver.MaxNeeds {
		node.Fail("job %s needs units for %d operations: at most %d can be held", j.Name, len(each), driver.MaxNeeds)
		return
	}
	span := j.span(len(j.Regions), false)
	item := driver.Item{Span: span.Microseconds(), Floor: j.Floor, Labels: driver.Labels{Job: j.Name}}
	var all []needs.Amount
	for range runs {
		all = append(all, each...)
	}
	for _, a := range needs.Together(all) {
		item.Needs = append(item.Needs, driver.Need{Operation: a.Operation, Units: min(a.Units, limit.MaxUnits), Calls: min(a.Calls, limit.MaxUnits)})
	}
	counted := false
	for _, l := range j.holdLimits(item, upstream) {
		switch {
		case !item.CheckedBy(l):
			node.Warn("job %s holds nothing of limit %s: %s may take %s, and the limit counts %s; a shorter timeout, grace or stagger would change that, or more runs at once (parallel)",
				j.Name, l.Name, j.Hold.what(), limit.SpanText(span), limit.SpanText(time.Duration(l.Window.Shortest())*time.Microsecond))
		case !upstream.Observe && !l.Observe && item.NeverFits(l, false):
			node.Fail("job %s could never start: %s holds %d %s of limit %s (%d), beside its floor and what is guaranteed to others; lower needs or max_pages, raise the limit, or write hold = \"run\"",
				j.Name, j.Hold.what(), item.Amount(l), l.Counts, l.Name, l.Limit)
			return
		default:
			counted = true
			if share := l.ShareOf(j.Name); share >= 0 && !upstream.Observe && !l.Observe && l.Shares[share].Guarantee < item.Amount(l) {
				node.Warn("job %s may not start although its share %s is guaranteed %d of limit %s: %s holds %d; guarantee as much",
					j.Name, l.Shares[share].Name, l.Shares[share].Guarantee, l.Name, j.Hold.what(), item.Amount(l))
			}
		}
	}
	if !counted {
		node.Fail("job %s would hold nothing: %s may take %s, longer than any of its limits counts; lower timeout, grace or stagger, or take hold out", j.Name, j.Hold.what(), limit.SpanText(span))
	}
}

// holdLimits are the rolling and calendar limits that cover an operation of a hold.
func (j *Job) holdLimits(item driver.Item, upstream config.Upstream) (list []limit.Limit) {
	for _, whole := range upstream.Limits {
		for _, n := range item.Needs {
			if l := whole.For(n.Operation); l.Covers(n.Operation) && l.Window.Shortest() > 0 && !slices.ContainsFunc(list, func(other limit.Limit) bool { return other.Name == l.Name }) {
				list = append(list, l)
			}
		}
	}
	return list
}

// what is what a job with this value holds the needs of, in words.
func (h Hold) what() string {
	if h == HoldRun {
		return "a run"
	}
	return "a pass"
}
