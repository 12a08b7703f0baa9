package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// ErrUnderWay: a pass of the job is under way.
var ErrUnderWay = errors.New("a pass of it is under way")

// Forget removes all that is kept of a job: what it does, its history, its pause, what
// waits, where its runs are to go on. It is for a job that is configured nowhere any
// more: a daemon that follows it begins it anew. The error wraps ErrUnderWay where a
// pass is under way whose daemon was heard of in time; one that was not, and comes back,
// ends at its next heartbeat.
func Forget(ctx context.Context, in State, name string) error {
	for _, document := range []string{runSlots(name), name} { // what tells of the others goes last
		if err := forget(ctx, in, document, name); err != nil {
			return fmt.Errorf("forget job %s: %w", name, err)
		}
	}
	return nil
}

// forget removes a document of a job, unless a pass of that is under way.
func forget(ctx context.Context, in State, document, name string) error {
	for {
		found, err := in.Jobs(ctx, []string{document, name})
		if err != nil {
			return err
		}
		s, err := readDocument[state](name, found[1])
		if err != nil {
			return err
		}
		for _, c := range s.Active {
			if c.Until > found[1].Now {
				return fmt.Errorf("%w, %s, of %s: quotactl cancel %s ends it", ErrUnderWay, placeOf(c.Holder), formatTick(time.UnixMicro(c.Tick)), name)
			}
		}
		swapped, err := in.SwapJob(ctx, driver.JobSwap{Job: document, Version: found[0].Version, Remove: true})
		if err != nil || swapped {
			return err
		}
	}
}
