package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Lease hands out units that are charged already, from memory: for operations that are
// called thousands of times a second. It is safe for concurrent use.
//
// It charges a number of units at a time as one reservation, with the labels of its call,
// and settles that with what was taken: when the units are used up, when the span ends, and
// at Close. A quarter before the end of the units, or of the span if something was taken, it
// renews itself in the background. A lease that nobody takes from is not renewed; the next
// Take renews it.
//
// The units count from the settlement, so they return later than those of calls that are
// charged one by one: by the span at most. A process that dies leaves them charged in full,
// until the span ends and, after that, the window. A span does not go beyond the reset of a
// calendar limit: the lease settles a moment before, and takes wait until the reset.
//
// The lease asks the store three times a second whether a lock, a fence, a reset or a loss
// concerns it, and hands out nothing on an answer that is older than 0.9 s. So takes stop
// within a second of any of these, whichever process caused it, and also when the store
// does not answer. Then each Take gets what Charge would get: with the policy Open, units
// of the host's allowance, else ErrUnavailable.
type Lease struct {
	budget *Budget
	call   Call
	fence  string // the name of the lock that fences the call off; empty: none
	units  int64
	span   time.Duration
	limits []limit.Limit // to look at; see watched
	probe  bool          // the last of limits is probeWindow, which is not live yet

	held    atomic.Pointer[holding] // nil: none
	receipt atomic.Pointer[Receipt]
	wake    chan struct{} // something to do for the keeper
	closing chan struct{} // closed by Close
	over    chan struct{} // closed when the keeper has ended

	mu     sync.Mutex // guards all below
	takers []*taker   // those that wait for the keeper, first come first served
	closed bool

	// Only the keeper, and Budget.Lease before it begins, uses these.
	mark   driver.Mark // of the last look
	asked  time.Time   // when the last look was asked
	looked time.Time   // when the last look that was answered was asked
	chores []chore
	tidy   time.Time // when the chores are tried next
	unsaid error     // why the last chore that is left failed
}

// Lease charges units for many calls of one operation and hands them out in memory, until
// it is closed. Each of its charges has that many units, 1 to MaxUnits, and lasts span, more
// than 0 and at most MaxLease. The call says operation, labels, fence, floor, headroom and
// policy of these charges; it has no ID and no Units. ErrInvalid if it does, or if a limit
// on open reservations or on calls covers the operation: a lease is one charge, so it cannot
// count the calls. Otherwise Lease refuses as Charge does. The context bounds this call
// only. Close the lease before the budget.
func (b *Budget) Lease(ctx context.Context, call Call, units int64, span time.Duration) (*Lease, error) {
	l, err := b.newLease(b.inRun(ctx, call), units, span)
	if err != nil {
		return nil, err
	}
	if err := l.open(ctx); err != nil {
		_ = l.tidyUp(context.WithoutCancel(ctx)) // err says if that is needed
		return nil, err
	}
	go l.keep()
	return l, nil
}

// newLease checks what needs no store.
func (b *Budget) newLease(call Call, units int64, span time.Duration) (*Lease, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("lease %s %s: %w: "+format, append([]any{b.spec.Name, call.Operation, ErrInvalid}, args...)...)
	}
	switch {
	case call.ID != "" || call.Units != nil:
		return nil, invalid("its call has an id or units: leave them out")
	case units < 1 || units > limit.MaxUnits:
		return nil, fmt.Errorf("lease %s %s: %w: %d units: use 1 to %d", b.spec.Name, call.Operation, ErrTooManyUnits, units, limit.MaxUnits)
	case span < time.Microsecond || span > MaxLease:
		return nil, invalid("a span of %s: use 1µs to %s", span, MaxLease)
	}
	if _, err := b.check(call); err != nil {
		return nil, err
	}
	for _, l := range b.Limits(call.Operation) {
		switch {
		case l.Window.Kind == limit.Concurrent:
			return nil, invalid("limit %s counts open reservations, and a lease is one, whatever is taken from it: reserve each call", l.Name)
		case l.Counts == limit.CountCalls:
			return nil, invalid("limit %s counts calls, and a lease is one call, whatever is taken from it: charge each call", l.Name)
		}
	}
	l := &Lease{
		budget: b, call: call, units: units, span: span, fence: driver.FenceName(call.Labels.Job, call.Fence),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), over: make(chan struct{}),
	}
	l.watched()
	return l, nil
}

// taker is a Take that waits for the keeper.
type taker struct {
	units int64
	done  chan error // gets nil once the units are taken
}

// Take takes units, 0 to MaxUnits, that the lease has charged. While there are enough it
// asks nobody and does not block; otherwise it waits until the lease is renewed, at most as
// long as a Charge waits for the store. If the store refuses that, Take returns its
// [*RefusedError], without an ID. After an error nothing is taken. ErrClosed after Close.
func (l *Lease) Take(ctx context.Context, units int64) error {
	if h := l.held.Load(); h != nil && units >= 0 {
		switch took, low := h.take(units, time.Now()); {
		case took && low:
			l.nudge()
			return nil
		case took:
			return nil
		}
	}
	return l.await(ctx, units)
}

// await has the keeper take the units.
func (l *Lease) await(ctx context.Context, units int64) error {
	if units < 0 || units > limit.MaxUnits {
		return l.failed(units, fmt.Errorf("%w: use 0 to %d", ErrTooManyUnits, limit.MaxUnits))
	}
	if ctx.Err() != nil {
		return l.failed(units, context.Cause(ctx))
	}
	t := &taker{units: units, done: make(chan error, 1)}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.failed(units, ErrClosed)
	}
	l.takers = append(l.takers, t)
	l.mu.Unlock()
	l.nudge()
	timer := time.NewTimer(l.budget.spec.Timeout + answerTime)
	defer timer.Stop()
	end := error(nil)
	select {
	case err := <-t.done:
		return err
	case <-timer.C:
		end = l.refused(units, errTimeout)
	case <-ctx.Done():
		end = l.failed(units, context.Cause(ctx))
	}
	l.mu.Lock()
	at := slices.Index(l.takers, t)
	if at >= 0 {
		l.takers = slices.Delete(l.takers, at, at+1)
	}
	l.mu.Unlock()
	if at < 0 { // the keeper is serving it
		return <-t.done
	}
	return end
}

// Receipt is that of the lease's latest charge. Its Remaining is what the limit had left
// with all of the lease's units charged.
func (l *Lease) Receipt() Receipt { return *l.receipt.Load() }

// Close ends the takes and settles what was taken. Those that wait get ErrClosed. An error
// says that the settlement was not recorded: the units then stay charged in full. If the
// context ends first, the lease goes on to settle once in the background.
func (l *Lease) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	select {
	case <-l.over:
	case <-ctx.Done():
		select {
		case <-l.over: // it has ended too
			return l.unsettled()
		default:
		}
		return fmt.Errorf("close the lease of %s %s: %w; whether it was settled is unknown, and if not, its units stay charged", l.budget.spec.Name, l.call.Operation, context.Cause(ctx))
	}
	return l.unsettled()
}

// unsettled is the error of a Close: what could not be recorded. The keeper has ended.
func (l *Lease) unsettled() error {
	if len(l.chores) > 0 {
		return fmt.Errorf("close the lease of %s %s: %w; its units stay charged", l.budget.spec.Name, l.call.Operation, l.unsaid)
	}
	return nil
}

// nudge has the keeper look for something to do.
func (l *Lease) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // it has been nudged already
	}
}

// failed says what failed.
func (l *Lease) failed(units int64, err error) error {
	return fmt.Errorf("take %s of a lease of %s %s: %w", countUnits(units), l.budget.spec.Name, l.call.Operation, err)
}

// refused is what a take gets for an error of the store, or of the lease's charge: nothing
// is charged for the take, whatever became of the lease's charge.
func (l *Lease) refused(units int64, err error) error {
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		own := *refused
		own.ID, own.Units, own.NotCharged = "", units, true
		return &own
	}
	if refused := (*RefusedError)(nil); errors.As(l.budget.storeError(context.Background(), l.call, units, err), &refused) {
		refused.NotCharged = true
		return refused
	}
	return err
}
