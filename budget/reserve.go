package budget

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Reservation is a charge that is still open. It counts in full until it is settled or
// released. If neither happens, it counts like a charge made when its lease ends; a limit on
// open reservations counts it until then.
type Reservation struct {
	Receipt
	// Lease is the requested lease. It counts from Receipt.At; the store keeps a replay's
	// first lease.
	Lease time.Duration
	// Asked is when the store was asked, after any wait, on this process's clock with its
	// monotonic reading. What ends before Asked + Lease ends within the lease, except
	// for a replay.
	Asked  time.Time
	budget *Budget
}

// Reserve takes the call's units and keeps them open for lease, more than 0 and
// at most MaxLease. It refuses as Charge does.
func (b *Budget) Reserve(ctx context.Context, call Call, lease time.Duration) (*Reservation, error) {
	return b.reserve(ctx, call, lease, func(ctx context.Context, call Call, lease int64) (Receipt, time.Time, error) {
		asked := time.Now()
		receipt, err := b.charge(ctx, call, lease)
		return receipt, asked, err
	})
}

// reserve checks the lease and charges the call with charge, which also returns when it
// asked the store.
func (b *Budget) reserve(ctx context.Context, call Call, lease time.Duration, charge func(context.Context, Call, int64) (Receipt, time.Time, error)) (*Reservation, error) {
	if lease < time.Microsecond || lease > MaxLease {
		return nil, fmt.Errorf("reserve %s %s: %w: a lease of %s: use 1µs to %s", b.spec.Name, call.Operation, ErrInvalid, lease, MaxLease)
	}
	receipt, asked, err := charge(ctx, call, lease.Microseconds())
	if asked.IsZero() { // the store was not asked
		asked = time.Now()
	}
	receipt, err = b.tallied(b.observing(receipt, err))
	if err != nil {
		return nil, err
	}
	return &Reservation{Receipt: receipt, Lease: lease, Asked: asked, budget: b}, nil
}

// Settle records what the call cost: 0 to MaxUnits, which may be more than was
// reserved. The same value again is the same settlement; another value, or a settle
// after a release, is ErrConflict. Settle still records after the lease's end;
// ErrExpired means that the store no longer keeps the id. With SourceNone (observe
// mode) it does nothing.
func (r *Reservation) Settle(ctx context.Context, units int64) error {
	if r.Source == SourceNone {
		return nil
	}
	return r.budget.Settle(ctx, r.ID, units)
}

// Release gives the units back because the call was never sent. It is ErrExpired after
// the lease's end, and ErrConflict after a settlement.
func (r *Reservation) Release(ctx context.Context) error {
	if r.Source == SourceNone {
		return nil
	}
	return r.budget.Release(ctx, r.ID)
}

// Settle settles the reservation with this id; see [Reservation.Settle].
func (b *Budget) Settle(ctx context.Context, id string, units int64) error {
	if units < 0 || units > limit.MaxUnits {
		return fmt.Errorf("settle %s: %w: %d units: use 0 to %d", b.spec.Name, ErrTooManyUnits, units, limit.MaxUnits)
	}
	return b.finish(ctx, "settle", driver.Finish{ID: id, Units: units})
}

// Release releases the reservation with this id; see [Reservation.Release].
func (b *Budget) Release(ctx context.Context, id string) error {
	return b.finish(ctx, "release", driver.Finish{ID: id, Release: true})
}

func (b *Budget) finish(ctx context.Context, verb string, f driver.Finish) error {
	if !driver.ValidID(f.ID) {
		return fmt.Errorf("%s %s id %q: %w: use 1 to 128 printable ASCII characters without spaces", verb, b.spec.Name, f.ID, ErrInvalid)
	}
	f.Deadline = b.deadline(ctx)
	done, place, err := b.ender.do(ctx, &f)
	if errors.Is(err, ErrNotCharged) { // it was not sent
		err = cmp.Or(context.Cause(ctx), errTimeout)
	}
	if err != nil {
		return b.finished(verb, f.ID, driver.Finished{}, outOfReach(ctx, err))
	}
	return b.finished(verb, f.ID, done[place], nil)
}

// finished turns the store's answer on a reservation, or the error instead of one, into the
// caller's.
func (b *Budget) finished(verb, id string, done driver.Finished, err error) error {
	fail := func(err error, advice string) error {
		return fmt.Errorf("%s %s id %q: %w: %s", verb, b.spec.Name, id, err, advice)
	}
	if err != nil {
		return fmt.Errorf("%s %s id %q: %w", verb, b.spec.Name, id, err)
	}
	switch done.Result {
	case driver.Settled, driver.Released:
		b.waits.free()
		return nil
	case driver.FinishConflict:
		return fail(ErrConflict, "it is a plain charge, or was finished in another way before")
	case driver.FinishExpired:
		return fail(ErrExpired, "its lease has ended, or the store no longer keeps the id")
	case driver.FinishOverflow:
		return fail(ErrTooManyUnits, fmt.Sprintf("the ledger's sum would exceed %d", limit.MaxUnits))
	case driver.FinishLate:
		return fail(ErrUnavailable, "the store handled it after the deadline; nothing was recorded, try again")
	}
	return fail(errors.New("unknown answer"), fmt.Sprintf("the store answered with result %d; do all programs run the same version?", done.Result))
}

// finishBatch has the store finish reservations until ctx ends.
func (b *Budget) finishBatch(ctx context.Context, items []driver.Finish) ([]driver.Finished, error) {
	return b.store.Finish(ctx, driver.Finishes{Budget: b.spec.Name, Now: b.now().UnixMicro(), Items: items})
}

func newID() string { return rand.Text() }
