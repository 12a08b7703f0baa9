package driver

import "context"

// JobStore keeps a document for each job, values beside it, and a history of records.
// Package jobs, which calls it State, defines what they mean. It reads a document,
// changes it, and replaces the version that it read, so only one of several daemons
// succeeds. Every store implements it. Errors of all methods are those of [Store].
//
// A name is a job's name; one that begins with '@' is for what several jobs share.
type JobStore interface {
	// Job reads a job's document and the store's clocks.
	Job(ctx context.Context, job string) (JobDocument, error)
	// Jobs reads the documents of several jobs, in the order of names.
	Jobs(ctx context.Context, names []string) ([]JobDocument, error)
	// SwapJob makes a change in one step if the job's document still has the version
	// that was read; otherwise it changes nothing and returns false. After
	// ErrUnavailable it is unknown which.
	SwapJob(ctx context.Context, swap JobSwap) (bool, error)
	// JobValue reads a value beside a job's document; nil: there is none.
	JobValue(ctx context.Context, job, key string) ([]byte, error)
	// JobHistory reads a job's records, the newest first.
	JobHistory(ctx context.Context, query JobHistoryQuery) ([]JobRecord, error)
}

// JobDocument is a job's document as it was read.
type JobDocument struct {
	Version int64  // 0: there is none; each new text adds 1
	Text    []byte // nil: there is none
	// Now is the store's clock in µs, by which leases end; in SQLite it follows the
	// machine's boot clock. Wall is the store's wall clock at the same time; a person may
	// set it.
	Now, Wall int64
}

// JobSwap is a change to what the store keeps for a job.
type JobSwap struct {
	Job     string
	Version int64 // the one that was read
	// Text replaces the document and adds 1 to its version; nil keeps both.
	Text []byte
	// Values are kept beside the document; nil removes one.
	Values map[string][]byte
	// Records are added to the history; each replaces the one with its ID.
	Records []JobRecord
	// Forget removes the records before this instant, in µs. Most, unless 0, removes the
	// oldest beyond this number. Both apply only if Records are added.
	Forget int64
	Most   int
	// Remove forgets the job instead: its document, its values and its history. Only Job
	// and Version count then; if the document no longer exists, for example because an
	// earlier answer was lost, Version does not count either.
	Remove bool
}

// JobRecord is a record of a job's history.
type JobRecord struct {
	At   int64  // µs; orders the history, and ID breaks ties
	ID   string // unique in the job's history; 1 to 128 printable ASCII characters
	Text []byte
}

// JobHistoryQuery asks for records of a job.
type JobHistoryQuery struct {
	Job string
	// Since and Before bound At, in µs: Since ≤ At < Before; a Before of 0 sets no
	// bound.
	Since, Before int64
	Most          int // how many, 1 or more
}
