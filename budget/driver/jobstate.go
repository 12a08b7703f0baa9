package driver

import "context"

// JobStore keeps a document for each job, values beside it, and a history of
// records. What they say is the business of package jobs, which calls it State:
// it reads a document, changes it, and puts the new one in the place of the
// version that it read, so that of several daemons one is first. Every store is
// one. Errors of all methods are those of [Store].
//
// Names are those of jobs, or begin with '@' for what several jobs share.
type JobStore interface {
	// Job reads a job's document and the store's clocks.
	Job(ctx context.Context, job string) (JobDocument, error)
	// Jobs reads the documents of several, in the order of their names.
	Jobs(ctx context.Context, names []string) ([]JobDocument, error)
	// SwapJob changes what is kept of a job, in one step, if its document still has
	// the version that was read; false, with nothing changed, when it has another.
	// After ErrUnavailable it is not known which.
	SwapJob(ctx context.Context, swap JobSwap) (bool, error)
	// JobValue reads a value that is kept beside a job's document; nil when there
	// is none.
	JobValue(ctx context.Context, job, key string) ([]byte, error)
	// JobHistory reads a job's records, the newest first.
	JobHistory(ctx context.Context, query JobHistoryQuery) ([]JobRecord, error)
}

// JobDocument is a job's document as it was read.
type JobDocument struct {
	Version int64  // 0: there is none; 1 more with each new text
	Text    []byte // nil: there is none
	// Now is the store's clock in µs, by which leases are counted; in SQLite it
	// follows the machine's boot clock. Wall is the store's wall clock at the same
	// time, which may be set.
	Now, Wall int64
}

// JobSwap is a change of what is kept of a job.
type JobSwap struct {
	Job     string
	Version int64 // that was read
	// Text takes the place of the document, whose version then is 1 more; nil: it
	// stays, and so does its version.
	Text []byte
	// Values are kept beside the document; nil removes one.
	Values map[string][]byte
	// Records are added to the history; one whose ID is there takes its place.
	Records []JobRecord
	// Forget removes the records of instants before it, in µs, and Most, if it is
	// not 0, the oldest beyond so many; both when Records are added.
	Forget int64
	Most   int
	// Remove forgets the job instead: its document, its values and its history. The
	// fields above but Job and Version are not looked at; where there is no document any
	// more, as after an answer that was lost, Version neither.
	Remove bool
}

// JobRecord is a record of a job's history.
type JobRecord struct {
	At   int64  // µs, by which the history is ordered; then by ID
	ID   string // unique in the job's history; 1 to 128 printable ASCII characters
	Text []byte
}

// JobHistoryQuery asks for records of a job.
type JobHistoryQuery struct {
	Job string
	// Since and Before bound At, in µs: Since ≤ At < Before; a Before of 0 bounds
	// nothing.
	Since, Before int64
	Most          int // how many, 1 or more
}
