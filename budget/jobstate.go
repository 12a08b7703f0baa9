package budget

import "context"

// JobStore keeps what jobs need between their passes, by the store's clock.
// Every store is one; package jobs calls it State. Errors of all methods are
// those of [Store].
type JobStore interface {
	// Job reads what is kept of a job: the zero JobState when nothing is.
	Job(ctx context.Context, job string) (JobState, error)
	// Begin takes the job's overlap mark for a pass and notes its tick, in one
	// step. The state is the one found before. The holder of the mark that asks
	// again, since an answer was lost, has begun. A tick more than ClockTolerance
	// past the store's clock is ErrClock, and a noted one as far ahead counts
	// for nothing: a clock that was wrong once must not stop a job for years.
	Begin(ctx context.Context, pass BeginPass) (BeginResult, JobState, error)
	// Renew keeps the mark standing for hold µs from now; false when another
	// pass took it or it was given up.
	Renew(ctx context.Context, job, holder string, hold int64) (bool, error)
	// End gives the mark up and records the pass: the region the next one
	// begins with, and a record as the jobs package writes it. False, with
	// nothing recorded, when another pass took the mark meanwhile. The same end
	// again is true.
	End(ctx context.Context, job, holder, nextRegion string, record []byte) (bool, error)
}

// JobState is what a store keeps of a job between its passes.
type JobState struct {
	// NextRegion is the region the next pass begins with; empty: the first.
	NextRegion string
	// LastTick and LastManual are the ticks (µs) of the newest scheduled and
	// manual pass that began; 0 for none.
	LastTick   int64
	LastManual int64
	// Last is the record of the last finished pass, as the jobs package wrote
	// it; nil for none.
	Last []byte
	// Holder is the pass that holds the overlap mark, HeldUntil the instant
	// (µs, store's clock) at which the mark falls if it is not renewed, and
	// Held whether it was still in force when the state was read.
	Holder    string
	HeldUntil int64
	Held      bool
}

// BeginPass asks for a job's overlap mark.
type BeginPass struct {
	Job    string
	Holder string // unique to the pass
	Tick   int64  // µs
	Manual bool   // not on schedule: the tick is counted apart
	Hold   int64  // µs for which the mark stands unless renewed
}

// BeginResult is what became of a BeginPass.
type BeginResult int

// The results of a BeginPass.
const (
	Began   BeginResult = iota + 1 // the mark is the holder's
	Overlap                        // another pass holds the mark
	Taken                          // a pass of this tick, or a later one, began before
)
