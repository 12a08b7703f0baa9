package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/proc"
)

// ending says how a run ended before its last page.
type ending struct {
	outcome Outcome
	reason  string
	err     error // nil if the reason says everything
	again   bool  // the upstream throttles: try again after wait
	retry   bool  // a failure that may pass by itself: try again after wait at least
	wait    time.Duration
}

// Error implements error.
func (e *ending) Error() string {
	if e.err == nil {
		return string(e.outcome) + ": " + e.reason
	}
	return e.err.Error()
}

func (e *ending) Unwrap() error { return e.err }

// of adapts the ending to a run: a run that was stopped after it had spent is drained,
// not skipped.
func (e *ending) of(run Run) *ending {
	if e == nil || e.outcome != Skipped || run.spentNothing() {
		return e
	}
	drained := *e
	drained.outcome = Drained
	if drained.reason == ReasonDrained {
		drained.reason = ReasonStop
	}
	return &drained
}

func failed(reason string, err error) *ending {
	return &ending{outcome: Failed, reason: reason, err: err}
}

// fenced is the ending of a run whose pass lost its claim.
func fenced() *ending { return &ending{outcome: Lost, reason: ReasonFenced, err: errLost} }

// The causes with which the contexts of a pass end.
var (
	errDrained  = errors.New("the daemon is stopping")
	errOthers   = errors.New("another region is exhausted")
	errLost     = errors.New("the pass was declared dead; is this host's clock or store slow?")
	errTimedOut = errors.New("the run's timeout has passed")
)

// cut translates a context's cause into an ending.
func cut(ctx context.Context) *ending {
	cause := context.Cause(ctx)
	var byPerson *cancelled
	switch {
	case errors.As(cause, &byPerson):
		return &ending{outcome: Skipped, reason: ReasonCancelled, err: byPerson}
	case errors.Is(cause, errDrained):
		return &ending{outcome: Skipped, reason: ReasonDrained}
	case errors.Is(cause, errOthers):
		return &ending{outcome: Skipped, reason: ReasonExhausted}
	case errors.Is(cause, errLost):
		return fenced()
	case errors.Is(cause, errTimedOut):
		return &ending{outcome: TimedOut, reason: ReasonTimeout, err: errTimedOut}
	}
	return &ending{outcome: Skipped, reason: ReasonInterrupted}
}

// refusal is the ending of a charge, or of a check for room, that was not granted.
func refusal(ctx context.Context, err error) *ending {
	if ctx.Err() != nil {
		return cut(ctx)
	}
	switch {
	case errors.Is(err, budget.ErrFenced):
		return &ending{outcome: Lost, reason: ReasonFenced, err: err}
	case errors.Is(err, budget.ErrLocked):
		return &ending{outcome: Exhausted, reason: ReasonUpstream, err: err}
	case errors.Is(err, budget.ErrRecovering):
		return &ending{outcome: Exhausted, reason: ReasonRecovering, err: err}
	case errors.Is(err, budget.ErrExhausted):
		return &ending{outcome: Exhausted, reason: ReasonLimit, err: err}
	case errors.Is(err, budget.ErrTooManyHolds):
		return &ending{outcome: Exhausted, reason: ReasonHold, err: err, wait: holdsPause}
	case errors.Is(err, budget.ErrNeverFits):
		return failed(ReasonNeverFits, err)
	case errors.Is(err, budget.ErrClock):
		return failed(ReasonClock, err)
	}
	for _, store := range []error{
		budget.ErrUnavailable, budget.ErrDamaged, budget.ErrStoreConfig, budget.ErrClosed,
	} {
		if errors.Is(err, store) {
			return failed(ReasonStore, err)
		}
	}
	return failed(ReasonCharge, err)
}

// waitFor waits for d. If the context ends before, or has already ended, it returns the
// ending for the context's cause.
func waitFor(ctx context.Context, d time.Duration) *ending {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return cut(ctx)
	}
	return nil
}

// either is a context of the first that also ends with the second, with its cause.
func either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() { stop(); end(nil) }
}

// untilClosed is a context that ends, with a cause, when a channel is closed.
func untilClosed(ctx context.Context, closed <-chan struct{}, cause error) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	select {
	case <-closed:
		end(cause)
	default:
		go func() {
			select {
			case <-closed:
				end(cause)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { end(nil) }
}

// EndTakes is how long a stopped pass may take in addition to its grace: for the last
// lines of a killed command, its meter, the checkpoint, the check of the claim, the sum of what was
// spent, the release of slots, the end of two holds (of a run that is not to start, and of
// another), the look when deferred units return, and the record.
const EndTakes = proc.PipeWait + meterEnds + finalWriteTimeout + 2*claimTimeout + 3*finalWriteTimeout + 3*claimTimeout + finalWriteTimeout
