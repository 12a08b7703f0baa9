package jobs

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// runAll starts the regions in order and waits for all. Only this loop starts
// runs, one after the other, so what is not started is always the rest.
func (p *pass) runAll(order []string) []Run {
	runs := make([]Run, len(order))
	for place, region := range order {
		runs[place].Region = region
	}
	p.mu.Lock()
	p.runs = append([]Run(nil), runs...)
	p.mu.Unlock()
	parallel := p.job.Parallel
	switch {
	case parallel == 0 && p.once:
		parallel = 1
	case parallel == 0:
		parallel = len(order)
	}
	slots := make(chan struct{}, parallel)
	over := &spent{done: make(chan struct{})}
	began := time.Now()
	var running sync.WaitGroup
	var rest *ending // of the regions that are not started
	started := 0
	for ; started < len(order); started++ {
		place, run := started, &runs[started]
		var free func()
		rest, free = p.admit(place, run.Region, began, slots, over)
		if rest != nil && rest.outcome != Failed {
			break
		}
		if rest != nil { // the look itself failed, and with it this run
			p.ended(place, run, rest)
			<-slots
			continue
		}
		run.Started = Instant{p.now()}
		p.note(place, *run)
		running.Go(func() {
			defer func() { <-slots }()
			defer free()
			end := p.runOne(run)
			run.Ended = Instant{p.now()}
			p.ended(place, run, end)
			if end != nil && end.outcome == Exhausted {
				over.once.Do(func() { close(over.done) })
			}
		})
	}
	running.Wait()
	if started < len(order) {
		p.next = order[started]
	}
	for place := started; place < len(order); place++ {
		p.ended(place, &runs[place], rest)
		if rest.outcome == Exhausted { // of what the first of them needs
			rest = &ending{outcome: Skipped, reason: ReasonExhausted}
		}
	}
	return runs
}

// runOne does what the job does for one region.
func (p *pass) runOne(run *Run) (end *ending) {
	log := p.newRunLog(run)
	if p.job.Fetch == nil {
		end = p.runCommand(run, log)
	} else {
		end = p.run(run, log)
	}
	run.Log = log.tail.lines()
	return end.of(*run)
}

// spent tells the regions still to be started that one before them was
// exhausted.
type spent struct {
	once sync.Once
	done chan struct{}
}

// admit lets the region at a place start: when its offset has come, a slot is
// free, and what it needs would fit. With a nil or failed ending the slot is
// taken; with a nil one, so are those that daemons share, until free is called.
func (p *pass) admit(place int, region string, began time.Time, slots chan struct{}, over *spent) (end *ending, free func()) {
	if !p.once {
		timer := time.NewTimer(time.Until(began.Add(p.job.Offset(place))))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-over.done:
		case <-p.soft.Done():
		}
	}
	select {
	case slots <- struct{}{}:
	case <-over.done:
	case <-p.soft.Done():
	}
	select {
	case <-over.done:
		return &ending{outcome: Skipped, reason: ReasonExhausted}, nil
	case <-p.soft.Done():
		return cut(p.soft), nil
	default:
	}
	if end := p.room(region, over); end != nil {
		return end, nil
	}
	free, end = p.takeSlots(region, over)
	return end, free
}

// room waits until what a run needs would fit, at most the job's MaxWait.
func (p *pass) room(region string, over *spent) *ending {
	latest := time.Now().Add(p.job.MaxWait)
	recovering := false // it is logged that a recovery is waited for
	for {
		err := p.budget.Room(p.hard, p.job.Needs, p.job.Floor)
		if err == nil {
			return nil
		}
		end := refusal(p.hard, err)
		var refused *budget.RefusedError
		if end.outcome != Exhausted || !errors.As(err, &refused) {
			return end
		}
		if refused.Floor > 0 { // it was handed in, and is the job's
			refused.FloorJob = p.job.Name
		}
		wait, waits := p.waitFor(refused, latest)
		waits = waits && (errors.Is(err, budget.ErrRecovering) || !time.Now().Add(wait).After(latest))
		p.logRefusal(p.log.With("region", region, "run", p.job.runLabel(p.tick, region)), refused, waits, &recovering)
		if !waits {
			return end
		}
		if end := p.waitUnless(over, wait); end != nil {
			return end
		}
	}
}

// waitUnless waits for units; an ending when another region is exhausted or
// the pass is to end.
func (p *pass) waitUnless(over *spent, d time.Duration) *ending {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over.done:
		return &ending{outcome: Skipped, reason: ReasonExhausted}
	case <-p.soft.Done():
		return cut(p.soft)
	}
}

// logRefusal says what did not fit and when it will. A wait for a recovery looks every
// few seconds: only the first look is logged.
func (p *pass) logRefusal(log *slog.Logger, refused *budget.RefusedError, waits bool, recovering *bool) {
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
	log.Log(p.hard, at, message, fields...)
}

// ended fills in how a run ended and tells of it.
func (p *pass) ended(place int, run *Run, end *ending) {
	run.Outcome = Succeeded
	if end != nil {
		run.Outcome, run.Reason = end.outcome, end.reason
		if end.err != nil {
			run.Error = end.err.Error()
		}
	}
	p.note(place, *run)
	p.options.Observe.RunEnded(p.job, run.Region, run.Outcome)
	if p.options.Report != nil {
		p.report.Lock()
		defer p.report.Unlock()
		p.options.Report(p.job, p.tick, *run)
		return
	}
	fields := []any{"region", run.Region, "run", p.job.runLabel(p.tick, run.Region)}
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
