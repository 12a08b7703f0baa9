package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// FenceFor is how long a fence lasts: longer than any pass that it shuts out.
const FenceFor = 8 * 24 * time.Hour

// Fence shuts out a pass of a job that is considered dead: from now on, calls with its
// number as Call.Fence and its job as a label are refused with ErrFenced, whichever
// process or machine sends them. Reservations made before can still be settled. The
// number is 1 or more.
func (b *Budget) Fence(ctx context.Context, job string, number int64) error {
	return b.FenceIn(ctx, b.spec.Name, job, number)
}

// FenceIn is Fence for a pass that spends another budget of the same store, named
// "upstream/credential". That budget need not be configured here.
func (b *Budget) FenceIn(ctx context.Context, name, job string, number int64) error {
	if !driver.ValidBudget(name) || !driver.ValidName(job) || number < 1 {
		return fmt.Errorf("fence job %q off from %q: %w: number %d", job, name, ErrInvalid, number)
	}
	_, err := apply(ctx, b, driver.Lock{
		Budget: name, Now: b.now().UnixMicro(), Limit: driver.FenceName(job, number),
		After: FenceFor.Microseconds(), Most: driver.MaxLock, Why: "the pass was lost", Force: true,
	})
	if err != nil {
		return fmt.Errorf("fence job %s off from %s: %w", job, name, err)
	}
	return nil
}

// errFence is the cause that a fenced call gets.
var errFence = errors.New("its pass was declared dead, and its tick is accounted for; stop, and let the next pass continue")
