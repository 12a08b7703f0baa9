package driver

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// Batch asks for decisions on one budget.
type Batch struct {
	Budget string
	// Now is the caller's wall clock in µs: a witness, never the decider.
	Now int64
	// Limits are all limits of the budget; a limit for one operation only where an
	// item has that operation. [Item.CheckedBy] says which of them check an item. The
	// windows and meters of all become live.
	Limits []limit.Limit
	Items  []Item
	// Finishes, at most MaxBatch, are done first, as if Store.Finish were called right before,
	// even if no item is decided then. They have no Deadline.
	Finishes []Finish
	// Mark is the caller's latest mark of the ledger; zero: none.
	Mark Mark
	// Others are marks of the same ledger that other calls or processes of the caller's
	// host received; the store checks for their charges too. At most MaxOthers.
	Others []Mark
	// Host is the id of the caller's state directory, hexadecimal; empty: it has none.
	// Hosts is how many hosts share the store; 0 means 1.
	Host  string
	Hosts int64
	// Table is how the caller divides the limits into shares; the store only notes it.
	Table ShareTable
	// WithinPart: the items are within the part that the host may spend while other
	// hosts have yet to report a loss.
	WithinPart bool
	// Observe: locks of the whole budget refuse nothing. For locks of a limit, the
	// limit's own Observe counts.
	Observe bool
}

// Item is one charge to decide. The caller has validated it.
type Item struct {
	ID        string
	Operation string
	Units     int64 // 0 to MaxUnits
	Lease     int64 // µs; 0 for a plain charge, else up to MaxLease
	Floor     int64 // units that must remain in every limit that counts units
	// UseHeadroom lets the item spend headroom; see [limit.Limit.Bound].
	UseHeadroom bool
	Labels      Labels
	// Needs make the item a hold of its Fence's pass, and of the run of its Labels' region, if
	// it has one: these units and calls are kept until the end of the Lease, and the pass's
	// charges draw from them. Each operation comes once; MaxNeeds at most. Operation is then
	// empty, and Units is their sum. An Item without a Fence is no hold.
	Needs []Need
	// Span is how long a hold's pass may take, in µs: limits of shorter windows do not count
	// the hold.
	Span int64
	// Fence is the name of the lock that fences off the item's pass, or empty. While that
	// lock holds, the item is Fenced.
	Fence string
	// NewID: the id was made for this item and never sent before. Stores take no notice;
	// package refusals answers only such items.
	NewID bool
	// DryRun: decide without charging. The answer is what the item would get now if its
	// id were new; Remaining does not count the item, and At is 0.
	DryRun bool
	// Recorded: it happened Age µs ago, 0 or more. It is recorded, not decided.
	Recorded bool
	Age      int64
	// OnStoreError is what the item gets while the store is out of reach. Only package
	// outage reads it.
	OnStoreError Policy
	// Deadline is the instant, on the caller's clock, after which the item must not be
	// charged; zero: none.
	Deadline time.Time
}

// Result is the decision on one item.
type Result int

// The results of a decision.
const (
	Granted        Result = iota + 1 // charged, or a replay of a charge
	Refused                          // does not fit now
	NeverFits                        // units and floor are above a limit that checks it
	Conflict                         // the id was used for another call
	Late                             // the deadline has passed; not charged
	Overflow                         // a sum would exceed MaxUnits
	Interrupted                      // the deadline passed before RetryAt was known; not charged
	OutcomeUnknown                   // it is unknown whether it was charged, Err says why; send the same id again
	Unreached                        // the store was not asked, Err says why; not charged
	Fenced                           // the item's pass is fenced off; not charged
)

// Decision is the answer for one item.
type Decision struct {
	Result   Result
	Replayed bool
	// First and Ended are for a replay: the labels of the first charge, and how its
	// reservation ended.
	First Labels
	Ended Ended
	// Units and At are those of the charge; for a replay, those of the first answer.
	Units int64
	At    int64
	// Limit is the index in Batch.Limits of the limit that binds; −1: none does. Refused:
	// the one that fits last. NeverFits: the first that cannot fit, or if only all together
	// cannot, the first with lapses. Granted: the one with the least remaining, among those
	// that count units if there are any. The first of several equals wins.
	Limit int
	// Remaining is what that limit has left at now, after the decision, 0 or more.
	Remaining int64
	// Kept is set on Refused by a divided limit: for each of its shares, in their order,
	// what is kept for it and so is not available to the item; 0 for the item's own share.
	// If the item counts in the calendar's next period too and fits only the present one,
	// it is what is kept in the next.
	Kept []int64
	// Locked: a lock binds, because it ends no earlier than everything else fits. It
	// locks the limit, or the whole budget if Limit is −1. Why is its reason.
	Locked bool
	Why    string
	// Observed is the name of the first limit in observe mode that would have refused the
	// granted item, or ObservedLock for a lock of the budget. Empty: nothing would have
	// refused it, or it is a replay.
	Observed string
	// Recovering: what binds is a loss of data that not all hosts have reported yet.
	Recovering bool
	// Unsure: this refused item may have been charged by an earlier attempt that got no
	// answer.
	Unsure bool
	// Remembered: package refusals gives an earlier refusal again; the store was not asked.
	// Limit, Remaining and Kept are of then. An item of more units than that refusal was of
	// may fit only later than RetryAt.
	Remembered bool
	// Err is why, on OutcomeUnknown and Unreached.
	Err error
	// Allowance: the host's allowance decided, not the store. At and RetryAt are then on
	// the host's clock, and Limit and Remaining are the allowance's; Limit is −1 if the
	// store's last answer still applies.
	Allowance bool
	// RetryAt is set on Refused: the first instant at which everything fits if nothing
	// else happens. It is later than the end of what binds if a guarantee that has lapsed
	// is back by then.
	RetryAt int64
	// Ends is set if RetryAt is later: when what binds ends.
	Ends int64
}

// Together is a refusal of now by what ends last, put off until the item fits all limits at
// one instant; waits are for the limits that refuse it, and for those that have lapses. If
// there is no such instant, the item never fits the first of the limits with lapses.
func (d Decision) Together(limits []limit.Limit, item Item, waits []limit.Wait, now int64, remaining func(i int) int64) Decision {
	if d.Result != Refused || !slices.ContainsFunc(waits, func(w limit.Wait) bool { return w.Starts != nil || w.Spells != nil }) {
		return d
	}
	if at := limit.FitsTogether(waits, d.RetryAt); at == d.RetryAt {
		return d
	} else if at < limit.Never {
		d.Ends, d.RetryAt = d.RetryAt, at
		return d
	}
	first := item.FirstWithLapses(limits, now)
	return Decision{Result: NeverFits, Limit: first, Remaining: remaining(first)}
}

// PlanLook is when, in µs from now, a call is to ask again that only a daemon's next record of
// what shares still need can let in.
const PlanLook int64 = 60_000_000

// UnlessPlanned is a decision of now that there is no instant at which the item fits, unless a
// guarantee lapses by plan, or the item draws from a hold what it could not have otherwise: then
// it is refused for PlanLook, since less may be needed by then, or the hold be renewed.
func (d Decision) UnlessPlanned(limits []limit.Limit, item Item, now int64) Decision {
	if d.Result != NeverFits && (d.Result != Refused || d.RetryAt < limit.Never) {
		return d
	}
	if slices.ContainsFunc(limits, func(l limit.Limit) bool {
		return !l.Observe && item.CheckedBy(l) && (l.ByPlan() || item.NeverFits(l, false))
	}) {
		d.Result, d.RetryAt, d.Ends = Refused, now+PlanLook, 0
	}
	return d
}

// FirstWithLapses is the place of the first limit with lapses that the item waits for; -1 if
// there is none. Records that ended by now are none: a store may still have them.
func (i Item) FirstWithLapses(limits []limit.Limit, now int64) int {
	return slices.IndexFunc(limits, func(l limit.Limit) bool {
		return i.WaitsForLapses(l) && (len(l.Lapses()) > 0 || l.RecordedAfter(now))
	})
}

// WaitsForLapses reports whether the item's wait must look at a limit even if that does not
// refuse it now: it may when a guarantee that has lapsed is back, or a record of one ends.
func (i Item) WaitsForLapses(l limit.Limit) bool {
	return !l.Observe && i.CheckedBy(l) && (len(l.Lapses()) > 0 || l.ByRecords())
}

// Ended is how a reservation ended; empty for an open one and for a plain charge.
type Ended string

// The ends of a reservation.
const (
	EndedSettled  Ended = "settled"
	EndedReleased Ended = "released"
	EndedLease    Ended = "expired" // its lease ended
)

// ObservedLock stands for a lock of the whole budget in Decision.Observed.
const ObservedLock = "lock"

// Decisions are the answers of a batch, item by item.
type Decisions struct {
	// Now is the earlier clock, not raised to last seen: RetryAt − Now is the wait.
	Now   int64
	Items []Decision
	// Finished are the answers to Batch.Finishes. If there are fewer, it is unknown which were
	// done, and items that fit all the same were decided before: call Store.Finish with the same.
	Finished []Finished
	// Used is what each limit had used after the last item, in the order of Batch.Limits,
	// and Seen is the instant (µs) of that. If the call's time ran out before every item
	// was decided, Used is nil and Seen is 0.
	Seen int64
	Used []int64
	// Mark is the ledger's after the last item: pass it with the next batch.
	Mark Mark
	// AtWork is how many hosts have decided on the budget within HostNoted.
	AtWork int
}
