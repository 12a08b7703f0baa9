package jobs

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// pass is a pass under way.
type pass struct {
	runner *Runner
	job    *Job
	budget *budget.Budget
	held   heldClaim
	tick   time.Time
	once   bool // run alone: no stagger, and one run at a time unless the job sets parallel
	log    *slog.Logger
	// soft ends when no further page may be started; hard ends the job's grace
	// later, when the page under way is given up.
	soft, hard context.Context
	beats      beats
	regions    int  // how many it has
	begun      int  // how many of them, the first, were reported as their runs ended
	holding    held // what it holds of the budget
	// unreached is when the first of the last looks and holds found no store, none of which was
	// answered since; zero: the last was answered. Only what starts runs uses it.
	unreached time.Time

	mu   sync.Mutex // guards all below
	runs []Run      // their state so far, in the order of the pass
	// returns is the first instant (µs, the store's clock) at which what refused a run
	// ends; 0: unknown. asksAgain is the first to which the upstream asks to wait.
	returns   int64
	asksAgain time.Time
	// besideHolds: a limit refused a run of which passes hold something.
	besideHolds bool
}

// pass runs a claimed pass, to its record. When soft ends no further page is started;
// when ctx ends the pass is cut at once.
func (r *Runner) pass(ctx, soft context.Context, j *Job, claimed claim, next string, once bool) Pass {
	log := r.log.With("job", j.Name, "budget", j.Budget)
	if !once { // what runs only the jobs named does not know what the others need
		r.planBefore(ctx, j, claimed)
	}
	p := &pass{
		runner: r, job: j, once: once, held: heldClaim{claim: claimed, docs: r.docs, job: j, log: log}, tick: time.UnixMicro(claimed.Tick).UTC(),
		budget: r.budget(j.Budget).ForJob(j.Name, j.says()), log: log,
	}
	record := Record{
		Tick: Instant{p.tick}, Kind: claimed.Kind, Started: Instant{r.now()}, Host: placeOf(claimed.Holder),
		Request: claimed.request(), Note: claimed.note(),
	}
	p.log.Debug("pass began", "tick", formatTick(p.tick), "kind", claimed.Kind, "order", p.order(next))
	if claimed.Part <= 1 {
		r.options.Ping(j, record)
	}
	own, cutSoft := context.WithCancelCause(soft)
	hard, cutHard := context.WithCancelCause(ctx)
	p.soft, p.hard = own, hard
	defer r.mayCancel(claimed.Holder, func(by Cancel) { cutSoft(&cancelled{by}) })()
	var helpers sync.WaitGroup
	helpers.Go(func() { p.watchDrain(cutHard) })
	begun := record
	helpers.Go(func() { p.keepClaim(begun, cutSoft) })
	if claimed.Outside {
		record.Runs = p.runOutside()
	} else {
		record.Runs = p.runAll(p.order(next))
	}
	for _, region := range claimed.regions() {
		if !claimed.Outside && !slices.Contains(j.Regions, region) {
			record.Runs = append(record.Runs, Run{
				Region: region, Outcome: Failed, Reason: ReasonRegion,
				Error: "the job has no such region in the configuration of the daemon that took the request",
			})
		}
	}
	cutHard(nil)
	cutSoft(nil)
	helpers.Wait()
	record.Ended = Instant{r.now()}
	record.conclude()
	if slices.ContainsFunc(record.Runs, func(run Run) bool { return run.Pages > 1 }) { // then the path is right
		for i := range record.Runs {
			if run := &record.Runs[i]; run.Pages == 1 && !run.Unknown {
				run.Warning = ""
			}
		}
	}
	if p.unstarted(record) {
		by := p.giveBack(ctx, record)
		if by == nil {
			return Pass{j.Name, record}
		}
		record.cancel(*by)
		p.tellRest(record)
	} else {
		left := p.left(&record)
		whole, recorded, waits := p.end(ctx, soft, record, left)
		switch record = whole; {
		case !recorded: // who declares the pass dead, tells of it
			return Pass{j.Name, record}
		case waits: // its end is yet to come
			r.options.Ping(j, record)
			return Pass{j.Name, record}
		}
	}
	p.held.ping(r, record)
	r.options.Observe.PassEnded(j, record.Outcome)
	return Pass{j.Name, record}
}

// order is the pass's regions in the order in which they start: those that the request
// names, or all.
func (p *pass) order(next string) []string {
	if p.held.claim.Part > 1 {
		return p.held.claim.Regions
	}
	order := p.job.OrderFrom(p.held.claim.First, next)
	if asked := p.held.claim.regions(); asked != nil {
		order = slices.DeleteFunc(order, func(region string) bool { return !slices.Contains(asked, region) })
	}
	return order
}

// watchDrain waits for soft to end, gives the pages under way the job's grace, and then
// ends hard.
func (p *pass) watchDrain(cutHard context.CancelCauseFunc) {
	<-p.soft.Done() // the pass must stop, is over, or lost its claim
	if waitFor(p.hard, p.job.Grace) == nil {
		cutHard(context.Cause(p.soft))
	}
}

// keepClaim renews the claim until the pass is over and stores the progress with it. If
// the claim is lost, because the pass was declared dead, it is not made again: the pass
// ends.
func (p *pass) keepClaim(record Record, cutSoft context.CancelCauseFunc) {
	heartbeat := p.runner.options.Heartbeat
	for waitFor(p.hard, heartbeat) == nil {
		p.beats.all(p.hard, heartbeat/2)
		ctx, cancel := context.WithTimeout(p.hard, heartbeat)
		mine, active, err := p.held.renew(ctx, p.progress(record))
		cancel()
		if err != nil {
			if p.hard.Err() == nil {
				p.log.Warn("the pass's claim was not renewed; trying again", "tick", formatTick(p.tick), "error", err)
			}
			continue
		}
		p.runner.endCancelled(active)
		if !mine {
			p.log.Error("another daemon declared the pass dead; it ends", "tick", formatTick(p.tick))
			cutSoft(errLost)
			return
		}
	}
}

// progress is the record so far.
func (p *pass) progress(record Record) json.RawMessage {
	p.mu.Lock()
	record.Runs = slices.Clone(p.runs)
	p.mu.Unlock()
	if record.Runs == nil {
		record.Runs = []Run{}
	}
	return record.json()
}

// note makes a run's state known to the heartbeat.
func (p *pass) note(place int, run Run) {
	p.mu.Lock()
	p.runs[place] = run
	p.mu.Unlock()
}

// beats are the functions that run at each heartbeat of a pass.
type beats struct {
	mu   sync.Mutex // guards all below
	list []*beat
}

// beat is one of them. Its turn is taken while do runs, and for good once do must not run again.
type beat struct {
	do   func(context.Context)
	turn chan struct{}
}

// on has do called at each heartbeat, until the returned function is called; after that
// returns, do is not running.
func (b *beats) on(do func(ctx context.Context)) (stop func()) {
	one := &beat{do, make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, one)
	return func() {
		b.mu.Lock()
		b.list = slices.DeleteFunc(b.list, func(other *beat) bool { return other == one })
		b.mu.Unlock()
		one.turn <- struct{}{}
	}
}

// all calls the functions, within a time. Only one goroutine calls it.
func (b *beats) all(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	b.mu.Lock()
	list := slices.Clone(b.list)
	b.mu.Unlock()
	for _, one := range list {
		select {
		case one.turn <- struct{}{}:
			one.do(ctx)
			<-one.turn
		default: // it was stopped meanwhile
		}
	}
}

// unstarted reports whether the daemon was stopped before any run of the pass was
// started. Then another daemon may take the pass, or this one after a restart.
func (p *pass) unstarted(record Record) bool {
	return !p.held.claim.Outside && (p.held.claim.Kind != Manual || p.held.claim.Part > 1) && len(record.Runs) > 0 && !slices.ContainsFunc(record.Runs, func(run Run) bool {
		return run.Reason != ReasonDrained || !run.Started.IsZero()
	})
}

// giveBack gives the tick back for other daemons to take. If a person cancelled the pass,
// it returns the cancel, and the tick is recorded as skipped.
func (p *pass) giveBack(ctx context.Context, record Record) *Cancel {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	by, err := p.held.giveBack(ctx, record)
	log := p.log.With("tick", formatTick(p.tick))
	switch {
	case err != nil:
		log.Error("the pass was not started, but its tick could not be given back: it will be declared dead in about two minutes", "error", err)
		return nil
	case by != nil:
		log.Info("pass cancelled: no run was started", "by", by.By)
	default:
		log.Info("pass given back: no run was started")
	}
	return by
}

// finalWrite returns a context for the last write. It ends finalWriteTimeout after soft:
// until then it waits for a store that does not answer, so that a pass that has ended is
// not recorded as lost. A pass that is run alone has finalWriteTimeout in any case.
func (p *pass) finalWrite(ctx, soft context.Context) (context.Context, context.CancelFunc) {
	if p.once {
		return context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	}
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(soft, func() {
		_ = waitFor(writing, finalWriteTimeout) // the context ends either way
		cancel()
	})
	return writing, func() { stop(); cancel() }
}

// end gives up the claim and records the pass; what it has left, unless nil, is deferred.
// It returns the record of all the pass's parts, whether it was recorded, and whether the
// pass was deferred.
func (p *pass) end(ctx, soft context.Context, record Record, left *deferred) (whole Record, recorded, waits bool) {
	writing, cancel := p.finalWrite(ctx, soft)
	defer cancel()
	recorded, whole, err := p.held.conclude(writing, record, left)
	if recorded || p.runner.options.Report != nil { // to whom runs are reported, all are
		p.tellRest(record)
	}
	record, waits = whole, left != nil && left.SoFar != nil && recorded
	log := p.log.With("tick", formatTick(p.tick), "outcome", record.Outcome, "reason", record.Reason, "units", record.Units)
	switch {
	case err != nil:
		log.Error("pass ended, but was not recorded", "error", err)
	case !recorded:
		log.Error("pass ended, but was not recorded: it was declared dead")
	case p.runner.options.Report == nil:
		log.Log(ctx, level(record.Outcome), "pass ended", "next_region", p.held.next)
	}
	if waits {
		p.wasDeferred(writing, left)
	}
	return whole, recorded, waits
}

// level is the log level of an outcome.
func level(o Outcome) slog.Level {
	switch o {
	case Failed, TimedOut, Lost:
		return slog.LevelError
	case Drained, Exhausted, Missed:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func formatTick(tick time.Time) string { return tick.UTC().Format(time.RFC3339) }
