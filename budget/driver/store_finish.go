package driver

import "time"

// Finish settles or releases a reservation.
type Finish struct {
	Budget string
	// Now is the caller's wall clock in µs, a witness.
	Now int64
	ID  string
	// Release: the call was never sent. Else Units is its actual cost, 0 to
	// MaxUnits, also above what was reserved.
	Release bool
	Units   int64
	// Age in µs, 0 or more: it ended that long ago, at the earliest at its charge.
	Age      int64
	Deadline time.Time // as in Item
}

// FinishResult is what became of a Finish.
type FinishResult int

// The results of a Finish.
const (
	Settled        FinishResult = iota + 1 // recorded, or a replay of it
	Released                               // given back, or a replay of it
	FinishConflict                         // finished another way before, or a plain charge
	FinishExpired                          // released past the lease's end, or the id is not held
	FinishLate                             // the deadline had passed; nothing was done
	FinishOverflow                         // a sum would pass MaxUnits
)

// Finished is the answer to a Finish.
type Finished struct {
	Result   FinishResult
	Replayed bool
	// At is its score then.
	At int64
	// Now is the clock that frees, not clamped.
	Now int64
}
