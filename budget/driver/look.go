package driver

import "github.com/quotactl/quotactl/budget/limit"

// Look asks what limits have used.
type Look struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	Limits []limit.Limit
	Mark   Mark   // as in Batch
	Others []Mark // as in Batch, but View.Missing lists which of their charges are missing
	Hosts  int64  // as in Batch
}

// View is the answer to a Look, limit by limit.
type View struct {
	Now    int64 // the earlier clock
	Limits []LimitView
	Locks  []LockView // the locks that hold, ordered by their limits' names
	Mark   Mark       // the ledger's; zero: there is no ledger
	AtWork int        // as in Decisions
	// Tables are the share tables by which calls were decided within TableNoted.
	Tables NotedTables
	// Plans are the records of what shares still need that have not ended.
	Plans Plans
	// Holds are those that live, in the order in which they were taken, without Drawn.
	Holds []Hold
	// Missing are the ids of the Others' charges that the ledger lacks.
	Missing []string
	// Entries is how many entries the ledger holds, also those that no limit counts any more and
	// that are not forgotten yet.
	Entries int64
	// Recovering is the instant (µs) until which a loss holds charges back; 0: it does
	// not.
	Recovering int64
}

// LimitView is what one limit has used.
type LimitView struct {
	// Used is in units or calls, as the limit counts; a bucket's level is rounded up.
	// Anything above the limit is debt. A meter that is not live shows what it would
	// begin with.
	Used int64
	// Since is the instant (µs) from which the ledger knows the window; 0: it knows all
	// of it, or the limit is a bucket.
	Since int64
	// NextAt is the first instant (µs) at which a part of Used returns, and NextAmount is
	// how much, if nothing else happens and open reservations run to their lease's end.
	// Both are 0 if nothing is used.
	NextAt     int64
	NextAmount int64
	// Recovered is how much of Used was recorded after a loss, and Drift how much an
	// upstream reported that no charge explains; both are 0 for a bucket.
	Recovered int64
	Drift     int64
	// Shares is how much of Used each of the limit's shares has charged, in their order.
	Shares []int64
}
