package driver

import "github.com/quotactl/quotactl/budget/limit"

// Report tells a store what an upstream counts as used.
type Report struct {
	Budget string
	Now    int64         // the caller's wall clock in µs, a witness
	Limits []limit.Limit // all of the budget, as in Batch
	Limit  string        // the name of one of them
	// Used is what the upstream counts, 0 to MaxUnits.
	Used int64
	// At is the instant (µs on the store's clock) before which the upstream did
	// not look; 0: it looked now. Seen is what the limit had used then, as the
	// store told it; 0 when that is not known.
	At   int64
	Seen int64
	// Reset is when it comes back, in µs; where it is 0, After µs past the later
	// of the clocks; where both are, with the window.
	Reset int64
	After int64
}

// Drift is the answer to a Report.
type Drift struct {
	Now int64 // the clock that frees, not clamped
	// Added is what was recorded, and Total what stands recorded in the limit.
	Added int64
	Total int64
	// Until is when Total comes back, in µs; 0 for a bucket, and where Total is 0.
	Until int64
}
