package driver

import (
	"context"
	"time"
)

// Finishes ask to settle or release reservations of one budget: 0 to MaxBatch, in order.
type Finishes struct {
	Budget string
	// Now is the caller's wall clock in µs, a witness.
	Now   int64
	Items []Finish
}

// Finish settles or releases a reservation.
type Finish struct {
	ID string
	// Release: the call was never sent. Otherwise Units is its actual cost, 0 to
	// MaxUnits; it may be above what was reserved.
	Release bool
	Units   int64
	// Age in µs, 0 or more: it ended that long ago, but no earlier than it was charged.
	Age      int64
	Deadline time.Time // as in Item
}

// FinishResult is the outcome of a Finish.
type FinishResult int

// The results of a Finish.
const (
	Settled        FinishResult = iota + 1 // recorded, or a replay
	Released                               // given back, or a replay
	FinishConflict                         // it was finished in another way, or is a plain charge
	FinishExpired                          // a release after the lease's end, or the id is not held
	FinishLate                             // the deadline has passed; nothing was done
	FinishOverflow                         // a sum would exceed 9 times MaxUnits
)

// Finished is the answer to a Finish.
type Finished struct {
	Result   FinishResult
	Replayed bool
	At       int64 // its score now; 0 if the id is not held
	Now      int64 // the earlier clock
}

// FinishOne has a store settle or release one reservation.
func FinishOne(ctx context.Context, store Store, budget string, now int64, one Finish) (Finished, error) {
	done, err := store.Finish(ctx, Finishes{Budget: budget, Now: now, Items: []Finish{one}})
	if err != nil {
		return Finished{}, err
	}
	return done[0], nil
}
