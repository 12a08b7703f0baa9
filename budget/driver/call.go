package driver

import "time"

// MaxLease is the longest a reservation may stay open.
const MaxLease = 24 * time.Hour

// MaxBatch is how many charges of one budget a store decides in one step.
const MaxBatch = 128

// Policy says what a call gets when the store is out of reach.
type Policy string

// The policies of on_store_error. The empty Policy asks the next one in turn:
// call, operation, job, upstream, closed.
const (
	Closed Policy = "closed"
	Open   Policy = "open"
)

// Labels say who spent the units. What a job of the configuration says of its charges
// ([budget.JobSays]) holds for those with its label; else labels change no decision.
type Labels struct {
	Job    string
	Region string
	Run    string
}
