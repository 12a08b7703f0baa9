package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// runAll starts the regions in order and waits for all. Only this loop starts runs, one
// after the other, so the regions that are not started are always the last ones.
func (p *pass) runAll(order []string) []Run {
	runs := make([]Run, len(order))
	for place, region := range order {
		runs[place].Region = region
	}
	p.mu.Lock()
	p.runs, p.regions = append([]Run(nil), runs...), len(order)
	p.mu.Unlock()
	parallel := p.job.Parallel
	switch {
	case parallel == 0 && p.once:
		parallel = 1
	case parallel == 0:
		parallel = len(order)
	}
	running := make(chan struct{}, parallel)
	over, exhaust := context.WithCancelCause(p.soft) // ends with the pass, or when a region is exhausted
	defer exhaust(nil)
	var started sync.WaitGroup
	var rest *ending // for the regions that are not started
	if p.holds() != HoldNone {
		defer p.beats.on(p.renewHolds)()
	}
	if p.job.Hold == HoldPass && len(order) > 0 {
		rest = p.hold("", order, over)
		defer p.endHold("")
	}
	began := time.Now()
	next := 0
	for ; rest == nil && next < len(order); next++ {
		place, record := next, &runs[next]
		var free func()
		rest, free = p.admit(place, record.Region, began, running, over)
		if rest != nil && rest.outcome != Failed {
			break
		}
		if rest != nil { // the check itself failed, so this run failed
			p.ended(place, record, rest)
			p.tell(*record)
			<-running
			rest = nil
			continue
		}
		record.Started = Instant{p.runner.now()}
		if late := time.Since(began) - p.job.Offset(place); p.held.claim.Part > 1 && late > 0 {
			began = began.Add(late) // others have the slots after a reset: the next region keeps its distance
		}
		begun := *record
		begun.Unknown = p.job.Fetch == nil // until it has ended
		p.note(place, begun)
		started.Go(func() {
			defer func() { <-running }()
			defer free()
			end := p.newRun(place, record).do()
			record.Ended = Instant{p.runner.now()}
			p.ended(place, record, end)
			p.tell(*record)
			if end != nil && end.outcome == Exhausted {
				exhaust(errOthers)
			}
		})
	}
	started.Wait()
	p.begun = next
	for place := next; place < len(order); place++ {
		p.ended(place, &runs[place], rest)
		if rest.outcome == Exhausted { // only the first of them was refused
			rest = &ending{outcome: Skipped, reason: ReasonExhausted}
		}
	}
	return runs
}

// admit lets the region at a place start once its offset has passed, fewer runs of the
// pass than parallel are running, and what it needs would fit. With a nil or failed
// ending the region counts as running. With a nil ending it also has the slots that
// daemons share, until free is called.
func (p *pass) admit(place int, region string, began time.Time, running chan struct{}, over context.Context) (end *ending, free func()) {
	if !p.once {
		if end := waitFor(over, time.Until(began.Add(p.job.Offset(place)))); end != nil {
			return end, nil
		}
	}
	select {
	case running <- struct{}{}:
	case <-over.Done():
	}
	if over.Err() != nil {
		return cut(over), nil
	}
	if end := p.room(region, over); end != nil {
		return end, nil
	}
	if free, end = p.takeSlots(region, over); end != nil || p.holds() != HoldRun {
		return end, free
	}
	slots := free
	if end = p.hold(region, []string{region}, over); end != nil {
		slots()
		return end, nil
	}
	return nil, func() { slots(); p.endHold(region) }
}

// room waits until what a run needs would fit.
func (p *pass) room(region string, over context.Context) *ending {
	end := p.waitForUnits(region, over, func() error { return p.job.look(p.hard, p.budget, p.job.span(p.regions, p.once)) })
	if end == nil && p.job.Hold != HoldRun { // such a look may have asked nothing; the hold that follows does
		p.unreached = time.Time{}
	}
	return end
}

// A host asks a store that is out of reach twice a second, and meanwhile refuses closed calls.
// A pass may take its claim before its host has noticed that the store is back. So a look or a
// hold that finds no store is repeated every storePause, for storePatience.
const (
	storePatience = 2 * time.Second
	storePause    = 250 * time.Millisecond
)

// waitForUnits repeats ask while it is refused, at most for the job's StartWait; or MaxWait in
// a pass that is run alone, or of which runs are under way. While ask finds no store, it is
// repeated for storePatience. The region is empty for a whole pass.
func (p *pass) waitForUnits(region string, over context.Context, ask func() error) *ending {
	log := p.log.With("tick", formatTick(p.tick))
	if region != "" || p.job.Hold != HoldPass {
		log = p.log.With("region", region, "run", p.job.partLabel(p.tick, p.held.claim.Part, region))
	}
	longest := p.job.StartWait
	if p.once || p.underWay() { // it is never deferred, or only once the others have ended
		longest = p.job.MaxWait
	}
	latest := time.Now().Add(longest)
	recovering := false // the wait for a recovery was logged
	for {
		err := ask()
		if err == nil {
			return nil
		}
		end := refusal(p.hard, err)
		if errors.Is(err, budget.ErrUnavailable) && end.reason == ReasonStore {
			if !p.waitsForStore(log, err) {
				return end
			}
			if cut := waitFor(over, storePause); cut != nil {
				if cut.err == nil {
					cut.err = err
				}
				return cut
			}
			continue
		}
		p.unreached = time.Time{}
		var refused *budget.RefusedError
		if end.outcome != Exhausted || !errors.As(err, &refused) {
			return end
		}
		if refused.Floor > 0 { // it was asked with the job's floor
			refused.FloorJob = p.job.Name
		}
		wait, waits := refusalWait(p.budget, refused, longest, latest)
		if end.wait > 0 {
			wait, waits = end.wait, true
		}
		waits = waits && (errors.Is(err, budget.ErrRecovering) || !time.Now().Add(wait).After(latest))
		logRefusal(p.hard, log, refused, waits, &recovering)
		if !waits {
			return end
		}
		if end := waitFor(over, wait); end != nil {
			return end
		}
	}
}

// waitsForStore reports whether a look or a hold that found no store is to be repeated. Once one
// was repeated in vain, each of the others is asked once, until the store answers.
func (p *pass) waitsForStore(log *slog.Logger, err error) bool {
	if p.unreached.IsZero() {
		p.unreached = time.Now()
		log.Info("the store does not answer; trying again", "for", storePatience, "error", err)
	}
	return time.Since(p.unreached) < storePatience
}

// underWay reports whether a run of the pass is under way.
func (p *pass) underWay() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.runs, func(run Run) bool { return !run.Started.IsZero() && run.Outcome == "" })
}

// logRefusal logs what did not fit and when it will. A wait for a recovery asks again
// every few seconds; only the first refusal is logged.
func logRefusal(ctx context.Context, log *slog.Logger, refused *budget.RefusedError, waits bool, recovering *bool) {
	inRecovery := waits && errors.Is(refused, budget.ErrRecovering)
	if inRecovery && *recovering {
		return
	}
	*recovering = inRecovery
	at := slog.LevelWarn
	message := "refused"
	if waits {
		at, message = slog.LevelInfo, "refused; waiting"
	}
	var fields []any
	if refused.Operation != "" {
		fields = append(fields, "operation", refused.Operation)
	}
	fields = append(fields, "units", refused.Units)
	switch {
	case errors.Is(refused, budget.ErrRecovering):
		fields = append(fields, "reason", ReasonRecovering)
	default:
		fields = append(fields, "limit", refused.Limit, "remaining", refused.Remaining)
	}
	if refused.Floor > 0 {
		fields = append(fields, "floor", refused.Floor)
	}
	if refused.Why != "" {
		fields = append(fields, "locked", refused.Why)
	}
	if !refused.RetryAt.IsZero() {
		fields = append(fields, "retry_at", refused.RetryAt.UTC().Format(InstantFormat))
	}
	if refused.Remembered {
		fields = append(fields, "remembered", true)
	}
	log.Log(ctx, at, message, fields...)
}

// ended fills in how a run ended.
func (p *pass) ended(place int, run *Run, end *ending) {
	p.held.claim.spends()
	if end != nil && end.outcome == Exhausted {
		p.noteRefusal(end)
	}
	run.finish(end)
	p.note(place, *run)
}

// finish notes how the run ended; nil: it succeeded.
func (r *Run) finish(end *ending) {
	r.Outcome = Succeeded
	if end != nil {
		r.Outcome, r.Reason = end.outcome, end.reason
		if end.err != nil {
			r.Error = end.err.Error()
		}
	}
}

// tellRest reports the runs that were not started. It follows the record: a pass that started
// none may be given back, for another daemon to run.
func (p *pass) tellRest(record Record) {
	for _, run := range record.Runs[p.begun:p.regions] {
		p.tell(run)
	}
}

// tell counts and reports a run.
func (p *pass) tell(run Run) {
	p.runner.options.Observe.RunEnded(p.job, run.Region, run.Outcome)
	if p.runner.options.Report != nil {
		p.runner.report.Lock()
		defer p.runner.report.Unlock()
		p.runner.options.Report(p.job, p.tick, run)
		return
	}
	fields := []any{"region", run.Region, "run", p.job.partLabel(p.tick, p.held.claim.Part, run.Region)}
	if p.job.Fetch != nil {
		fields = append(fields, "operation", p.job.Fetch.Operation)
	}
	fields = append(fields, "outcome", run.Outcome)
	if run.Reason != "" {
		fields = append(fields, "reason", run.Reason)
	}
	if p.job.Fetch != nil {
		fields = append(fields, "pages", run.Pages, "units", run.Units, "output", run.Output)
	} else {
		fields = append(fields, "units", run.Units)
	}
	if run.Unchanged > 0 {
		fields = append(fields, "unchanged", run.Unchanged)
	}
	if run.Attempts > 1 {
		fields = append(fields, "attempts", run.Attempts)
	}
	if run.Resumed {
		fields = append(fields, "resumed", true)
	}
	if run.Error != "" {
		fields = append(fields, "error", run.Error)
	}
	p.log.Log(p.hard, level(run.Outcome), "run ended", fields...)
}
