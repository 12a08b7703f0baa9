package jobs

import (
	"context"
	"time"
)

// waitFor waits for d. When the context ends first, or has ended by then, waitFor returns the
// ending that its cause stands for.
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

// either is a context of the first that also ends with the second, by its cause.
func either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() { stop(); end(nil) }
}

// untilDrained is a context that ends, by errDrained, when drain is closed.
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
