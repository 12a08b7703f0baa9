package jobs

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// retries are the tries that a run has left, over all its pages: of a page, or a
// command, that failed in a way that may pass by itself.
type retries struct {
	*pass
	run  *Run
	log  *slog.Logger
	left int
	base time.Duration // of the next wait
}

// tries counts a run's first try.
func (p *pass) tries(run *Run, log *slog.Logger) *retries {
	run.Attempts = 1
	return &retries{pass: p, run: run, log: log, left: p.job.Retries, base: p.job.RetryWait}
}

// again waits until what failed may be tried again; else it returns the ending of
// the run. It never waits past ctx's deadline; a drain ends the wait.
func (r *retries) again(ctx context.Context, end *ending) *ending {
	if !end.retry || r.left == 0 || r.soft.Err() != nil || ctx.Err() != nil {
		return end
	}
	wait := r.base/2 + time.Duration(r.options.Jitter()*float64(r.base/2))
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
	r.left--
	r.base = min(2*r.base, maxRetryWait)
	r.run.Attempts++
	r.log.Warn("failed; trying again", "attempt", r.run.Attempts, "wait", wait.Round(time.Millisecond), "reason", end.reason, "error", end.Error())
	cut := r.pause(ctx, wait)
	if cut != nil && cut.err == nil {
		cut.err = end.err // what it was that failed
	}
	return cut
}

// pause lets a wait pass that stands between two pages, or two tries: it ends early
// with the run, or with a drain.
func (p *pass) pause(ctx context.Context, d time.Duration) *ending {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.soft, func() { cancel(context.Cause(p.soft)) })()
	return sleep(ctx, d)
}

// passes reports whether a status tells of what may be over when it is asked again.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}
