package jobs

import (
	"context"
	"time"
)

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

// untilDrained is a context that ends, with errDrained, when drain is closed.
func untilDrained(ctx context.Context, drain <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	select {
	case <-drain:
		end(errDrained)
	default:
		go func() {
			select {
			case <-drain:
				end(errDrained)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { end(nil) }
}
