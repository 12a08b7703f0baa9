package jobs

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// pass is a pass under way.
type pass struct {
	*Runner
	job    *Job
	budget *budget.Budget
	claim  claim
	tick   time.Time
	once   bool // no stagger, and one run at a time where the job does not say
	log    *slog.Logger
	// soft ends when no further page is to be started, hard when the page
	// under way is to be given up, the job's grace later.
	soft, hard context.Context
	next       string // the region the next pass begins with

	mu   sync.Mutex // guards runs
	runs []Run      // what is known of them by now, in the order of the pass

	beat     sync.Mutex // guards all below
	beats    map[int]func(context.Context)
	lastBeat int
}

const (
	// lastWords bounds the writing of a record, which must be tried even when
	// the context has ended, and lastWordsAgain is the pause between its tries.
	lastWords      = 5 * time.Second
	lastWordsAgain = 500 * time.Millisecond
)

// manual runs a manual pass from its claim to its record.
func (r *Runner) manual(ctx context.Context, drain <-chan struct{}, j *Job, once bool) Pass {
	claimed, next, end := r.beginManual(ctx, drain, j)
	if end != nil {
		record := Record{
			Tick: Instant{r.now().Truncate(time.Second)}, Kind: Manual, Runs: []Run{},
			Outcome: end.outcome, Reason: end.reason, Error: end.Error(),
		}
		r.notStarted(ctx, j, record)
		return Pass{j.Name, record}
	}
	return r.pass(ctx, drain, j, *claimed, next, once)
}

// notStarted tells of a tick, or of several, that no pass is started for.
func (r *Runner) notStarted(ctx context.Context, j *Job, record Record) {
	fields := []any{"job", j.Name, "budget", j.Budget, "tick", formatTick(record.Tick.Time), "outcome", record.Outcome, "reason", record.Reason, "error", record.Error}
	if record.Until != nil {
		fields = append(fields, "until", formatTick(record.Until.Time), "ticks", record.Ticks)
	}
	r.log.Log(ctx, max(level(record.Outcome), slog.LevelWarn), "pass not started", fields...)
	for range max(record.Ticks, 1) {
		r.options.Observe.PassEnded(j, record.Outcome)
	}
}

// pass runs a pass that is claimed, to its record.
func (r *Runner) pass(ctx context.Context, drain <-chan struct{}, j *Job, claimed claim, next string, once bool) Pass {
	p := &pass{
		Runner: r, job: j, once: once, claim: claimed, tick: time.UnixMicro(claimed.Tick).UTC(),
		budget: r.budget(j.Budget).ForJob(j.Name, j.says()),
		log:    r.log.With("job", j.Name, "budget", j.Budget),
	}
	record := Record{
		Tick: Instant{p.tick}, Kind: claimed.Kind, Started: Instant{r.now()}, Host: placeOf(claimed.Holder),
		Request: claimed.request(), Note: claimed.note(),
	}
	p.log.Debug("pass began", "tick", formatTick(p.tick), "kind", claimed.Kind, "first", next)
	soft, cutSoft := context.WithCancelCause(ctx)
	hard, cutHard := context.WithCancelCause(ctx)
	p.soft, p.hard = soft, hard
	defer r.mayCancel(claimed.Holder, func(by Cancel) { cutSoft(&cancelled{by}) })()
	var helpers sync.WaitGroup
	helpers.Go(func() { p.obey(drain, cutSoft, cutHard) })
	begun := record
	helpers.Go(func() { p.keepClaim(begun, cutSoft) })
	order := j.Order(next)
	if asked := claimed.regions(); asked != nil {
		order = slices.DeleteFunc(order, func(region string) bool { return !slices.Contains(asked, region) })
	}
	record.Runs = p.runAll(order)
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
		if by := p.giveBack(ctx, record); by != nil {
			record.cancel(*by)
			r.options.Observe.PassEnded(j, record.Outcome)
		}
		return Pass{j.Name, record}
	}
	p.end(ctx, drain, record)
	r.options.Observe.PassEnded(j, record.Outcome)
	return Pass{j.Name, record}
}

// obey turns the drain into the ends of the two contexts: soft at once, hard
// when the grace is over.
func (p *pass) obey(drain <-chan struct{}, cutSoft, cutHard context.CancelCauseFunc) {
	select {
	case <-drain:
		cutSoft(errDrained)
	case <-p.soft.Done(): // the pass is over, or its claim is gone
	}
	timer := time.NewTimer(p.job.Grace)
	defer timer.Stop()
	select {
	case <-timer.C:
		cutHard(context.Cause(p.soft))
	case <-p.hard.Done():
	}
}

// keepClaim renews the claim until the pass is over, and writes with it how far the
// pass has come. A claim that was taken for dead is not made anew: the pass ends.
func (p *pass) keepClaim(record Record, cutSoft context.CancelCauseFunc) {
	for sleep(p.hard, p.options.Heartbeat) == nil {
		p.beatAll()
		ctx, cancel := context.WithTimeout(p.hard, p.options.Heartbeat)
		mine, err := p.renew(ctx, p.progress(record))
		cancel()
		switch {
		case err == nil && !mine:
			p.log.Error("the pass was taken for dead; it ends", "tick", formatTick(p.tick))
			cutSoft(errLost)
			return
		case err != nil && p.hard.Err() == nil:
			p.log.Warn("the pass's claim was not renewed; trying again", "tick", formatTick(p.tick), "error", err)
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

// unstarted reports whether the daemon was told to stop before anything of the pass
// was started: then it is another daemon's, or its own when it is back.
func (p *pass) unstarted(record Record) bool {
	return p.claim.Kind != Manual && len(record.Runs) > 0 && !slices.ContainsFunc(record.Runs, func(run Run) bool {
		return run.Reason != ReasonDrained || !run.Started.IsZero()
	})
}

// giveBack gives the tick back for others to take. One that a person has ended, of which
// this daemon did not hear before it was told to stop, is nobody's: it is recorded as
// skipped, and who ended it is returned.
func (p *pass) giveBack(ctx context.Context, record Record) (by *Cancel) {
	words, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	err := p.insist(words, func(bool) error {
		return p.change(words, p.job, func(s *state, _ clocks) (edit, error) {
			c := s.claimOf(p.claim.Holder)
			if c == nil {
				return edit{}, errStays
			}
			by = c.Cancel
			s.drop(p.claim.Holder)
			if by != nil {
				skipped := record
				skipped.cancel(*by)
				s.Last = skipped.brief().json()
				return edit{records: []driver.JobRecord{{At: p.claim.Tick, ID: p.claim.Holder, Text: skipped.json()}}}, nil
			}
			if p.claim.Request != nil {
				s.Requests = slices.Insert(s.Requests, 0, *p.claim.Request)
			} else {
				s.Waiting = slices.Insert(s.Waiting, 0, waiting{p.claim.Tick, p.claim.Kind})
			}
			return edit{}, nil
		})
	})
	if err == nil {
		err = tellDaemons(words, p.state, p.job.Name)
	}
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

// untilLastWords ends lastWords after the daemon is told to stop: a store that is away
// until then is waited for, so that a pass that has ended is not taken for lost. Who
// runs one pass alone waits for lastWords in any case.
func (p *pass) untilLastWords(ctx context.Context, drain <-chan struct{}) (context.Context, context.CancelFunc) {
	if p.once {
		return context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	}
	words, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		select {
		case <-words.Done():
			return
		case <-drain:
		case <-ctx.Done():
		}
		_ = sleep(words, lastWords) // over either way
	}()
	return words, cancel
}

// end gives the claim up and records the pass.
func (p *pass) end(ctx context.Context, drain <-chan struct{}, record Record) {
	words, cancel := p.untilLastWords(ctx, drain)
	defer cancel()
	recorded, err := p.conclude(words, record, p.next)
	log := p.log.With("tick", formatTick(p.tick), "outcome", record.Outcome, "reason", record.Reason, "units", record.Units)
	switch {
	case err != nil:
		log.Error("pass ended, but was not recorded", "error", err)
	case !recorded:
		log.Error("pass ended, but was not recorded: it was taken for dead")
	case p.options.Report == nil:
		log.Log(ctx, level(record.Outcome), "pass ended", "next_region", p.next)
	}
}

// level is how loud an outcome is told.
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
