package jobs

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// start asks for a pass.
type start struct {
	job    *Job
	tick   time.Time // of the schedule; a manual pass finds its own
	manual bool
	once   bool // no stagger, and one run at a time where the job does not say
}

// pass is a pass under way.
type pass struct {
	*Runner
	job    *Job
	budget *budget.Budget
	tick   time.Time
	once   bool
	log    *slog.Logger
	holder string
	// soft ends when no further page is to be started, hard when the page
	// under way is to be given up, the job's grace later.
	soft, hard context.Context
	next       string // the region the next pass begins with
}

// The overlap mark stands for holdFor unless it is renewed every renewEvery,
// so that a pass whose process died holds its job up for a minute at most.
const (
	holdFor    = time.Minute
	renewEvery = 15 * time.Second
	// lastWords bounds the writing of a record, which must be tried even when
	// the context has ended.
	lastWords = 5 * time.Second
)

// pass runs one pass from its mark to its record.
func (r *Runner) pass(ctx context.Context, drain <-chan struct{}, s start) Pass {
	p := &pass{
		Runner: r, job: s.job, tick: s.tick, once: s.once, holder: newHolder(),
		budget: r.options.Budgets[s.job.Budget].ForJob(s.job.OnStoreError),
		log:    r.log.With("job", s.job.Name, "budget", s.job.Budget),
	}
	state, end := p.begin(ctx, s.manual)
	record := Record{Tick: Instant{p.tick}, Runs: []Run{}}
	if end != nil {
		record.Outcome, record.Reason, record.Error = end.outcome, end.reason, end.Error()
		p.log.Log(ctx, max(level(end.outcome), slog.LevelWarn), "pass not started", "tick", formatTick(p.tick), "outcome", end.outcome, "reason", end.reason, "error", record.Error)
		r.options.Observe.PassEnded(s.job, record.Outcome)
		return Pass{s.job.Name, record}
	}
	p.log.Debug("pass began", "tick", formatTick(p.tick), "first", state.NextRegion)
	soft, cutSoft := context.WithCancelCause(ctx)
	hard, cutHard := context.WithCancelCause(ctx)
	p.soft, p.hard = soft, hard
	var helpers sync.WaitGroup
	helpers.Go(func() { p.obey(drain, cutSoft, cutHard) })
	helpers.Go(func() { p.keepMark(cutSoft) })
	record.Runs = p.runAll(s.job.Order(state.NextRegion))
	cutHard(nil)
	cutSoft(nil)
	helpers.Wait()
	record.conclude()
	p.end(ctx, record)
	r.options.Observe.PassEnded(s.job, record.Outcome)
	return Pass{s.job.Name, record}
}

// obey turns the drain into the ends of the two contexts: soft at once, hard
// when the grace is over.
func (p *pass) obey(drain <-chan struct{}, cutSoft, cutHard context.CancelCauseFunc) {
	select {
	case <-drain:
		cutSoft(errDrained)
	case <-p.soft.Done(): // the pass is over, or its mark is lost
	}
	timer := time.NewTimer(p.job.Grace)
	defer timer.Stop()
	select {
	case <-timer.C:
		cutHard(context.Cause(p.soft))
	case <-p.hard.Done():
	}
}

// keepMark renews the overlap mark until the pass is over. A mark that another
// pass took is not taken back: this one ends.
func (p *pass) keepMark(cutSoft context.CancelCauseFunc) {
	for sleep(p.hard, renewEvery) == nil {
		ctx, cancel := context.WithTimeout(p.hard, renewEvery)
		ours, err := p.options.State.Renew(ctx, p.job.Name, p.holder, holdFor.Microseconds())
		cancel()
		switch {
		case err == nil && !ours:
			p.log.Error("another pass took the job's mark; this one ends", "tick", formatTick(p.tick))
			cutSoft(errLost)
			return
		case err != nil && p.hard.Err() == nil:
			p.log.Warn("the job's mark was not renewed; trying again", "tick", formatTick(p.tick), "error", err)
		}
	}
}

// end gives the mark up and records the pass.
func (p *pass) end(ctx context.Context, record Record) {
	text, err := json.Marshal(record)
	ours := false
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		ours, err = p.options.State.End(ctx, p.job.Name, p.holder, p.next, text)
	}
	log := p.log.With("tick", formatTick(p.tick), "outcome", record.Outcome, "reason", record.Reason, "units", record.Units)
	switch {
	case err != nil:
		log.Error("pass ended, but was not recorded", "error", err)
	case !ours:
		log.Error("pass ended, but was not recorded: another pass took the job's mark")
	case p.options.Report == nil:
		log.Log(ctx, level(record.Outcome), "pass ended", "next_region", p.next)
	}
}

// level is how loud an outcome is told.
func level(o Outcome) slog.Level {
	switch o {
	case Failed, TimedOut, Lost:
		return slog.LevelError
	case Exhausted:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func formatTick(tick time.Time) string { return tick.UTC().Format(time.RFC3339) }
