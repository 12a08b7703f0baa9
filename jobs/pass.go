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
	once   bool // no stagger, and one run at a time where the job does not say
	log    *slog.Logger
	// soft ends when no further page is to be started, hard when the page
	// under way is to be given up, the job's grace later.
	soft, hard context.Context
	next       string // the region the next pass begins with
	beats      beats

	mu   sync.Mutex // guards runs
	runs []Run      // what is known of them by now, in the order of the pass
}

// pass runs a pass that is claimed, to its record. When soft ends no further page is
// started; when ctx ends the pass is cut at once.
func (r *Runner) pass(ctx, soft context.Context, j *Job, claimed claim, next string, once bool) Pass {
	log := r.log.With("job", j.Name, "budget", j.Budget)
	p := &pass{
		runner: r, job: j, once: once, held: heldClaim{claimed, r.docs, j, log}, tick: time.UnixMicro(claimed.Tick).UTC(),
		budget: r.budget(j.Budget).ForJob(j.Name, j.says()), log: log,
	}
	record := Record{
		Tick: Instant{p.tick}, Kind: claimed.Kind, Started: Instant{r.now()}, Host: placeOf(claimed.Holder),
		Request: claimed.request(), Note: claimed.note(),
	}
	p.log.Debug("pass began", "tick", formatTick(p.tick), "kind", claimed.Kind, "first", next)
	own, cutSoft := context.WithCancelCause(soft)
	hard, cutHard := context.WithCancelCause(ctx)
	p.soft, p.hard = own, hard
	defer r.mayCancel(claimed.Holder, func(by Cancel) { cutSoft(&cancelled{by}) })()
	var helpers sync.WaitGroup
	helpers.Go(func() { p.watchDrain(cutHard) })
	begun := record
	helpers.Go(func() { p.keepClaim(begun, cutSoft) })
	record.Runs = p.runAll(p.order(next))
	for _, region := range claimed.regions() {
		if !slices.Contains(j.Regions, region) {
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
	if p.unstarted(record) {
		by := p.giveBack(ctx, record)
		if by == nil {
			return Pass{j.Name, record}
		}
		record.cancel(*by)
	} else {
		p.end(ctx, soft, record)
	}
	r.options.Observe.PassEnded(j, record.Outcome)
	return Pass{j.Name, record}
}

// order is the pass's regions as they are to start: those that were asked for, or all.
func (p *pass) order(next string) []string {
	order := p.job.Order(next)
	if asked := p.held.claim.regions(); asked != nil {
		order = slices.DeleteFunc(order, func(region string) bool { return !slices.Contains(asked, region) })
	}
	return order
}

// watchDrain gives the pages that are under way when soft ends the job's grace, and ends
// hard then.
func (p *pass) watchDrain(cutHard context.CancelCauseFunc) {
	<-p.soft.Done() // the pass is to stop, or is over, or its claim is gone
	if waitFor(p.hard, p.job.Grace) == nil {
		cutHard(context.Cause(p.soft))
	}
}

// keepClaim renews the claim until the pass is over, and writes with it how far the
// pass has come. A claim that was taken for dead is not made anew: the pass ends.
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
			p.log.Error("the pass was taken for dead; it ends", "tick", formatTick(p.tick))
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

// beats is what is done at each heartbeat of a pass.
type beats struct {
	mu   sync.Mutex // guards all below
	list map[int]func(context.Context)
	last int
}

// on has something done at each heartbeat, until the returned function is called: once
// that returns, nothing of it is under way.
func (b *beats) on(do func(ctx context.Context)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.list == nil {
		b.list = map[int]func(context.Context){}
	}
	b.last++
	key := b.last
	b.list[key] = do
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.list, key)
	}
}

// all does what is to be done at a heartbeat, within a time.
func (b *beats) all(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, do := range b.list {
		do(ctx)
	}
}

// unstarted reports whether the daemon was told to stop before anything of the pass
// was started: then it is another daemon's, or its own when it is back.
func (p *pass) unstarted(record Record) bool {
	return p.held.claim.Kind != Manual && len(record.Runs) > 0 && !slices.ContainsFunc(record.Runs, func(run Run) bool {
		return run.Reason != ReasonDrained || !run.Started.IsZero()
	})
}

// giveBack gives the tick back for others to take. It returns who has ended the pass, if
// a person has: then the tick is recorded as skipped.
func (p *pass) giveBack(ctx context.Context, record Record) *Cancel {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	by, err := p.held.giveBack(ctx, record)
	log := p.log.With("tick", formatTick(p.tick))
	switch {
	case err != nil:
		log.Error("the pass was not started, and not given back: it is taken for dead in about two minutes", "error", err)
		return nil
	case by != nil:
		log.Info("pass cancelled: nothing of it was started", "by", by.By)
	default:
		log.Info("pass given back: nothing of it was started")
	}
	return by
}

// finalWrite ends finalWriteTimeout after soft: a store that is away until then is waited
// for, so that a pass that has ended is not taken for lost. A pass that is run alone waits
// for finalWriteTimeout in any case.
func (p *pass) finalWrite(ctx, soft context.Context) (context.Context, context.CancelFunc) {
	if p.once {
		return context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	}
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(soft, func() {
		_ = waitFor(writing, finalWriteTimeout) // over either way
		cancel()
	})
	return writing, func() { stop(); cancel() }
}

// end gives the claim up and records the pass.
func (p *pass) end(ctx, soft context.Context, record Record) {
	writing, cancel := p.finalWrite(ctx, soft)
	defer cancel()
	recorded, err := p.held.conclude(writing, record, p.next)
	log := p.log.With("tick", formatTick(p.tick), "outcome", record.Outcome, "reason", record.Reason, "units", record.Units)
	switch {
	case err != nil:
		log.Error("pass ended, but was not recorded", "error", err)
	case !recorded:
		log.Error("pass ended, but was not recorded: it was taken for dead")
	case p.runner.options.Report == nil:
		log.Log(ctx, level(record.Outcome), "pass ended", "next_region", p.next)
	}
}

// level is how loud an outcome is logged.
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
