package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FenceFor is how long a fence stands: longer than anything that it shuts out
// can last.
const FenceFor = 8 * 24 * time.Hour

// Fence shuts out a pass of a job that is taken for dead: from now on no call
// that carries its number, as Call.Fence, and its job as a label is charged any
// more, wherever it comes from; the error is then ErrFenced. What such calls cost
// that were charged before may still be settled. The number is 1 or more.
func (b *Budget) Fence(ctx context.Context, job string, number int64) error {
	return b.FenceIn(ctx, b.spec.Name, job, number)
}

// FenceIn is Fence for a pass that spends another budget of the same store, as
// "upstream/credential": nothing need be configured of that here.
func (b *Budget) FenceIn(ctx context.Context, name, job string, number int64) error {
	if !ValidBudget(name) || !ValidName(job) || number < 1 {
		return fmt.Errorf("fence job %q off from %q: %w: number %d", job, name, ErrInvalid, number)
	}
	caller := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, b.spec.Timeout, errTimeout)
	defer cancel()
	_, err := b.store.Lock(ctx, LockRequest{
		Budget: name, Now: b.now().UnixMicro(), Limit: fenceName(job, number),
		After: FenceFor.Microseconds(), Most: MaxLock, Why: "the pass was lost", Force: true,
	})
	if err != nil {
		return fmt.Errorf("fence job %s off from %s: %w", job, name, outOfReach(caller, err))
	}
	return nil
}

// fencePrefix begins the names of the locks that are fences. No limit's does.
const fencePrefix = "~"

// fenceName is the lock that shuts out a pass's number; empty for none.
func fenceName(job string, number int64) string {
	if number == 0 {
		return ""
	}
	return fencePrefix + job + "/" + strconv.FormatInt(number, 10)
}

// IsFence reports whether a lock of this name is a fence.
func IsFence(name string) bool { return strings.HasPrefix(name, fencePrefix) }

// errFence says what a fence is when a charge comes upon it.
var errFence = errors.New("its pass was taken for dead, and its tick is accounted for; stop, and let the next pass go on")
