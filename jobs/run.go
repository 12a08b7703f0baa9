package jobs

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// run is one region of a pass, under way. It has what a fetch or a command needs of its
// pass and of the runner, and nothing more.
type run struct {
	job    *Job
	tick   time.Time
	label  string // in the ledger
	record *Run   // its result
	budget *budget.Budget
	held   *heldClaim // the claim of its pass
	// soft ends when no further page may be started, hard when the page under way is
	// given up.
	soft, hard context.Context
	log        *slog.Logger // the log and the last lines
	lines      *runLog
	options    *Options // of the runner
	secrets    *secrets
	now        func() time.Time
	maxBody    int64
	flush      func(*os.File) error
	onBeat     func(do func(context.Context)) (stop func())
	publish    func(Run) // makes its progress known
	meter      Meter     // of its command's calls; nil: the command charges them

	triesLeft int           // retries of pages (over all of them) or of the command
	retryWait time.Duration // before the next retry
}

// newRun makes a run of the region at a place of the pass.
func (p *pass) newRun(place int, record *Run) *run {
	lines := p.newRunLog(record)
	return &run{
		job: p.job, tick: p.tick, label: p.job.partLabel(p.tick, p.held.claim.Part, record.Region), record: record, budget: p.budget, held: &p.held,
		soft: p.soft, hard: p.hard, log: lines.log, lines: lines, options: &p.runner.options, secrets: p.runner.secrets, now: p.runner.now,
		maxBody: p.runner.maxBody, flush: p.runner.flush, onBeat: p.beats.on, publish: func(soFar Run) { p.note(place, soFar) },
		triesLeft: p.job.Retries, retryWait: p.job.RetryWait,
	}
}

// do runs the job for the region. Nil means that it is complete.
func (r *run) do() (end *ending) {
	if r.job.Fetch == nil {
		end = r.command()
	} else {
		end = r.fetch()
	}
	r.record.Log = r.lines.tail.lines()
	return end.of(*r.record)
}

// again waits until what failed may be tried again, and returns nil; or it returns the
// run's ending. It never waits past ctx's deadline; a drain ends the wait.
func (r *run) again(ctx context.Context, end *ending) *ending {
	if !end.retry || r.triesLeft == 0 || r.soft.Err() != nil || ctx.Err() != nil {
		return end
	}
	wait := r.retryWait/2 + time.Duration(r.options.Jitter()*float64(r.retryWait/2))
	if end.wait > wait {
		wait = end.wait
	}
	if end.wait > r.job.MaxWait {
		r.log.Warn("not tried again: the upstream asks for a longer wait than max_wait", "retry_after", end.wait, "max_wait", r.job.MaxWait)
		return end
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Add(wait).Before(deadline) {
		return end
	}
	r.triesLeft--
	r.retryWait = min(2*r.retryWait, maxRetryWait)
	r.record.Attempts++
	r.log.Warn("failed; trying again", "attempt", r.record.Attempts, "wait", wait.Round(time.Millisecond), "reason", end.reason, "error", end.Error())
	cut := r.pause(ctx, wait)
	if cut != nil && cut.err == nil {
		cut.err = end.err // the failure that it waited for
	}
	return cut
}

// pause waits between two pages or two attempts; the run's end or a drain ends the wait.
func (r *run) pause(ctx context.Context, d time.Duration) *ending {
	ctx, cancel := either(ctx, r.soft)
	defer cancel()
	return waitFor(ctx, d)
}

// passes reports whether a status means that a later attempt may succeed.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}
