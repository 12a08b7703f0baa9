package driver

import "github.com/quotactl/quotactl/budget/limit"

// Look asks what limits have used.
type Look struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	Limits []limit.Limit
	Mark   Mark   // as in Batch
	Others []Mark // likewise, but what is missing of them is told in the View
	Hosts  int64  // as in Batch
}

// View is the answer to a Look, limit by limit.
type View struct {
	Now    int64 // the clock that frees, not clamped
	Limits []LimitView
	Locks  []LockView // those that stand, in the order of their limits' names
	Mark   Mark       // the ledger's; zero where there is none
	AtWork int        // as in Decisions
	// Missing are the ids of the Others' charges that the ledger lacks.
	Missing []string
	// Recovering is the instant (µs) up to which a loss holds charges back; 0 when
	// it holds none back.
	Recovering int64
}

// LimitView is what one limit has used.
type LimitView struct {
	// Used is in what the limit counts, a bucket's level rounded up; above the
	// limit it is debt. A meter that is not live shows what it would begin with.
	Used int64
	// Since is the instant (µs) from which the ledger knows all of the window;
	// 0 when it has known all of it throughout, and for a bucket.
	Since int64
	// NextAt is the first instant (µs) at which something returns if nothing
	// else happens and open reservations run to their lease's end, and
	// NextAmount how much; both 0 when nothing is used.
	NextAt     int64
	NextAmount int64
	// Recovered is how much of Used was recorded after a loss, Drift how much an
	// upstream reported that no charge explains; of a bucket neither is known.
	Recovered int64
	Drift     int64
}
