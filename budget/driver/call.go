package driver

import "time"

// MaxLease is the longest that a reservation may stay open.
const MaxLease = 24 * time.Hour

// MaxBatch is how many charges of one budget a store decides in one step.
const MaxBatch = 128

// Policy says what a call gets while the store is out of reach.
type Policy string

// The policies of on_store_error. An empty Policy means the next one of: the call's,
// the operation's, the job's, the upstream's, Closed.
const (
	Closed Policy = "closed"
	Open   Policy = "open"
)

// Labels say who spent the units. A job's settings ([budget.JobSays]) apply to charges
// with its label; otherwise labels change no decision.
type Labels struct {
	Job    string
	Region string
	Run    string
}
