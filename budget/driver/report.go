package driver

import "github.com/quotactl/quotactl/budget/limit"

// Report says what an upstream counts as used in one limit. The answer is [Drift].
type Report struct {
	Budget string
	Now    int64         // the caller's wall clock in µs, a witness
	Limits []limit.Limit // all of the budget, as in Batch
	Limit  string        // the name of one of them
	Used   int64         // what the upstream counts, 0 to MaxUnits
	// At is the earliest instant (µs on the store's clock) at which the upstream may
	// have counted; 0: it counted now. Seen is what the store said the limit had used
	// then; 0: unknown.
	At   int64
	Seen int64
	// Reset is when the used amount returns, in µs; 0: After µs past the later clock; if
	// both are 0, with the window.
	Reset int64
	After int64
}

// Drift is use that a report showed and no charge explains.
type Drift struct {
	Now   int64 // the earlier clock
	Added int64 // what was recorded now
	Total int64 // all drift that counts in the limit
	// Until is when Total returns, in µs; 0 for a bucket, and if Total is 0.
	Until int64
}
