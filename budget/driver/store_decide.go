package driver

import (
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// Batch asks for decisions on one budget.
type Batch struct {
	Budget string
	// Now is the caller's wall clock in µs: a witness, never the decider.
	Now int64
	// Limits are all limits of the budget, those of one operation only where an
	// item is of it. Each item is checked against those that [limit.Limit.Checks]
	// tells; all of their windows and meters are made live.
	Limits []limit.Limit
	Items  []Item
	// Mark is what the caller was last told of the ledger; zero: nothing.
	Mark Mark
	// Others are marks that other calls or processes of the caller's host were told of
	// the same ledger; their charges are looked for too. At most MaxOthers.
	Others []Mark
	// Host is the id of the caller's state directory, hexadecimal; empty: it has
	// none. Hosts is how many hosts share the store; 0 means 1.
	Host  string
	Hosts int64
	// WithinPart: the items are within the part that the host may spend while a
	// loss is made good; see Store.
	WithinPart bool
	// Observe: locks of the whole budget refuse nothing. Those of its limits are as
	// the limits' own Observe says.
	Observe bool
}

// Item is one charge to decide. The caller has validated it.
type Item struct {
	ID        string
	Operation string
	Units     int64 // 0 to MaxUnits
	Lease     int64 // µs; 0 for a plain charge, else up to MaxLease
	Floor     int64 // units that must remain in every limit that counts units
	// UseHeadroom lets the item spend headroom; see Limit.Bound.
	UseHeadroom bool
	Labels      Labels
	// Fence is the name of the lock that shuts its pass out, or empty: while it
	// stands the item is Fenced.
	Fence string
	// DryRun has the item decided and not charged: what it would have got now,
	// whatever became of its id. Remaining is then as without it, At 0.
	DryRun bool
	// Recorded: it happened Age µs ago, 0 or more, and is not decided any more.
	Recorded bool
	Age      int64
	// OnStoreError is what it gets while the store is out of reach; stores do not
	// look at it, package outage does.
	OnStoreError Policy
	// Deadline is the instant, on the caller's clock, after which the item
	// must not be charged any more; zero for none.
	Deadline time.Time
}

// Result is what was decided on one item.
type Result int

// The results of a decision.
const (
	Granted        Result = iota + 1 // charged, or a replay of a charge
	Refused                          // does not fit now
	NeverFits                        // units and floor stand above a covering limit
	Conflict                         // the id was used for another call
	Late                             // the deadline had passed; not charged
	Overflow                         // a sum would pass MaxUnits
	Interrupted                      // the deadline came before the wait was known; not charged
	OutcomeUnknown                   // the store failed on the way, as Err says: charged or not, send the same id again
	Unreached                        // the store was not asked, as Err says; not charged
	Fenced                           // a lock stands on the item's fence; not charged
)

// Decision is the answer for one item.
type Decision struct {
	Result   Result
	Replayed bool
	// First are the labels that a replayed charge was made with, and Ended how it has
	// ended as a reservation.
	First Labels
	Ended Ended
	// Units and At are those of the charge, for a replay of the first answer.
	Units int64
	At    int64
	// Limit is the index in Batch.Limits of the limit that binds: on Refused
	// the one that will fit last (the first of them where several tie), on
	// NeverFits the first that cannot, on Granted the one with the least
	// remaining (limits that count units first, then the first of them). −1
	// where none decided.
	Limit int
	// Remaining is what that limit has left after the decision, as of the
	// instant it was taken at, 0 or more.
	Remaining int64
	// Locked: what binds on Refused is a lock that ends no earlier than everything
	// else fits, that of the limit, or of the whole budget where Limit is −1. Why is
	// its reason.
	Locked bool
	Why    string
	// Observed is the name of the first limit in observe mode that would have
	// refused what was granted, or ObservedLock for a lock of the budget; empty:
	// none, and on a replay.
	Observed string
	// Recovering: what binds on Refused is a loss that not all hosts have reported
	// on yet.
	Recovering bool
	// Unsure: what is refused here may have been charged all the same, by an attempt
	// at this decision that was not answered.
	Unsure bool
	// Err is why, on OutcomeUnknown and Unreached.
	Err error
	// Allowance: it was decided by the host's allowance, not by the store. At and
	// RetryAt are then on the host's clock, Limit and Remaining those of the
	// allowance, and the Limit −1 when the store's last answer still stands.
	Allowance bool
	// RetryAt is set on Refused: the first instant at which every covering
	// limit fits if nothing else happens.
	RetryAt int64
}

// Ended is how a reservation has ended; empty for an open one, and a plain charge.
type Ended string

// The ends of a reservation.
const (
	EndedSettled  Ended = "settled"
	EndedReleased Ended = "released"
	EndedLease    Ended = "expired" // its lease is over
)

// ObservedLock stands for a lock of the whole budget in Decision.Observed.
const ObservedLock = "lock"

// Decisions are the answers of a batch, item by item.
type Decisions struct {
	// Now is the clock that frees, not clamped: RetryAt − Now is the wait.
	Now   int64
	Items []Decision
	// Seen is the instant (µs) at which the limits had used Used, limit by limit,
	// after the last item: the clamped clock or the last item's time. Both are
	// zero where not all items came to be decided.
	Seen int64
	Used []int64
	// Mark is the ledger's after the last item.
	Mark Mark
	// AtWork is how many hosts decided on the budget within HostNoted.
	AtWork int
}
