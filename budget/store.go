package budget

import (
	"context"
	"strings"
	"time"
)

// Store keeps the ledgers of budgets and decides on them. All its instants are
// int64 microseconds of its own clock. Implementations are safe for concurrent
// use, by goroutines and, where they say so, by processes and machines.
//
// What every store does the same (package storetest holds each to it):
//
// The clock. There are two: the store's, and the caller's Now, a witness. The
// earlier one frees: a decision is taken at now = max(last seen, min(clock,
// Now)), or max(last seen, clock) where Now stands more than 60 s behind the
// clock. What is charged counts from the later one: a new entry's time is the
// latest of now, the clock, Now, and 1 µs after the newest entry's. So no window
// is over in true time, however one of the two is set, as long as the other is
// right; a bucket drains by the earlier one alone, and where that catches up by
// up to 60 s it drains that much early. Decide (of no items too) and Finish
// record last seen, which is now, and follows the times of entries that are
// charged at one instant; Look need not. When the clock stands more than 60 s
// past both last seen and Now, or Now more than MaxLease past the clock, nothing
// is done: ErrClock. A store that measures
// time by a clock nobody can set needs no witness while it does.
//
// The ledger. An entry's score is the instant it finishes: its time for a
// plain charge, its lease's end while a reservation is open, and once that is
// finished the later clock's time or the lease's end, whichever is first. A window counts the entries whose score is above
// [Window.Cut] of now, released ones never; a window of kind Concurrent is one
// of length 0 that counts the calls of open reservations.
//
// Ids. An entry is held while its score is above now − 1 h or above the cut of
// any live window, a calendar's as of its last use. A window is live from the
// first decision that carries it until none did for its longest length plus
// WindowIdle; its last use is noted when the noted one is an hour old.
//
// Merging. Where every live window is rolling and either coarse or no longer
// than MinHeld, and one is coarse, Decide merges before its first item: B is the
// greatest slot boundary, over the live coarse windows' precisions, that is not
// above now − MinHeld. Each entry that is held and has a score above the highest
// B so far and at most B is moved to the first boundary of any of them at or
// after its score, and loses its id and its run; those of one such slot,
// operation, job and region become one entry, or few. Released ones go. No id of
// a score up to the highest B so far is held, even when merging has ended since.
//
// Buckets. A meter of the shape [Limit.Meter] begins with the first decision
// that carries it and is dropped as a window is, for [Limit.Longest]. From then
// on every new charge it covers adds to it, whatever limits the charge's own
// batch carries: [Refill.Add] at now; so does a settlement,
// with what it adds, or what it returns and the age of the reservation (now −
// its start); a release returns all units, or the one call. It begins with what
// is held and adds something, in order of min(score, now): where nothing is, it is empty; else it
// is filled to the limit (that of the first limit with this shape in the batch)
// at the least of these instants, and those of later instants are added, each
// at its own. Limits with the same shape share it; the first of a batch tells how
// long it lives. Its level is that at max(now, its last change), which is put
// to the later clock's time where that stands more than 60 s past now. It forgets nothing of the ledger and keeps nothing of it alive.
//
// Recorded items. An item with Recorded has happened already, while the store was
// out of reach: no limit is asked, only a sum past MaxUnits keeps it out. Its
// time is the later clock's less Age, its score then or its lease's end, later than what is
// merged; with a score that is forgotten at now it is granted and leaves no trace.
// Last seen stays, and what adds to a meter adds at now.
//
// Lost data. A batch and a look carry the newest charge that the caller saw
// acknowledged. It is lost when its time is above what is forgotten at now and
// what is merged, and no entry has its id: then nothing is decided, ErrLost.
// Recover records what is missing.
//
// Locks. A lock stands until its end is not above now. An item that is not
// Recorded is refused while one stands on the budget, or on the name of a limit
// that it is checked against; the lock fits at its end. A lock lives and is kept
// with the ledger; a reset forgets it.
//
// Limits in observe mode, and with [Batch.Observe] locks of the budget, refuse
// nothing: an item that was not Recorded and that they would have refused is
// charged and marked.
//
// Drift. A report on a limit whose window is rolling counts when its At is above
// the window's cut at now, on a calendar when it lies in the [Window.Span] of now,
// and when its reset is above now; on a concurrent limit never. What it says is used
// above the more of what is used now and what Seen says is added to the limit's
// charge under [DriftOperation], which counts in that limit alone. Of a rolling
// window the charge's score is the reset less the window's Length, at most now,
// which it is without a reset; of a calendar the first that counts; never below that
// of the charge that stands, nor below what is forgotten; it is never merged. A bucket is
// filled up to what the report says less what has drained since At.
//
// Errors of all methods: ErrUnavailable when the store did not answer in time
// (the outcome is then unknown), ErrStoreConfig when it cannot serve as it is
// set up, ErrClock, ErrDamaged when a ledger's parts do not agree, ErrClosed,
// and the context's error.
type Store interface {
	// Decide decides a batch of 0 to MaxBatch items for one budget in one
	// atomic step, in order; a bad item fails alone, in its Decision. The
	// items of one id are replays of the first.
	Decide(ctx context.Context, batch Batch) (Decisions, error)
	// Finish settles or releases a reservation.
	Finish(ctx context.Context, finish Finish) (Finished, error)
	// Look reads what the limits have used, without spending.
	Look(ctx context.Context, look Look) (View, error)
	// Spent sums what the ledger holds, without spending. It reads in bounded
	// steps: what is charged meanwhile may be in it or not.
	Spent(ctx context.Context, query SpentQuery) (SpentView, error)
	// Recover records what a caller had seen and the ledger has lost; nothing when
	// the newest charge that it saw acknowledged is there. For each limit that is
	// one charge under [RecoveredOperation], which counts in that limit alone: what
	// was used when the caller saw it less what still counts of scores up to then,
	// at that instant. A charge that another caller recorded is raised to the more
	// of both, amount and time. A bucket is filled by what is left of its level, at
	// most to its limit; open reservations are not recovered. A damaged ledger is
	// begun anew for it.
	Recover(ctx context.Context, recovery Recovery) (Recovered, error)
	// Lock closes a budget, or a limit of it, until an instant; one that stands is
	// left as it is unless Force says otherwise. It records last seen.
	Lock(ctx context.Context, lock LockRequest) (Locked, error)
	// Unlock ends a lock; false when none stood.
	Unlock(ctx context.Context, unlock UnlockRequest) (bool, error)
	// Report takes in what an upstream counts as used in one limit.
	Report(ctx context.Context, report Report) (Drifted, error)
	// Reset forgets a budget's ledger, wantedly: what was acknowledged before is
	// not missed.
	Reset(ctx context.Context, budget string) error
	// AcceptClock makes the store's clock the budget's last seen instant, after
	// a person found it right: what ErrClock held back then expires.
	AcceptClock(ctx context.Context, budget string) error
	// Close frees the store's resources. It is idempotent.
	Close() error
}

// ClockTolerance is how far the store's clock may stand past both last seen
// and the caller's clock, in µs.
const ClockTolerance int64 = 60_000_000

// MinHeld is how long an id is held at least, in µs.
const MinHeld int64 = 3_600_000_000

// WindowUseNoted is the age in µs at which a window's noted last use is renewed.
const WindowUseNoted int64 = 3_600_000_000

// WindowIdle is how long past its longest length an unused window lives, in µs.
const WindowIdle int64 = 7 * 24 * 3_600_000_000

// MaxOperations is how many operations one ledger tells apart; further ones
// are counted under OtherOperation.
const MaxOperations = 256

// OtherOperation stands for the operations beyond MaxOperations.
const OtherOperation = "other"

// Batch asks for decisions on one budget.
type Batch struct {
	Budget string
	// Now is the caller's wall clock in µs: a witness, never the decider.
	Now int64
	// Limits are all limits of the budget, those of one operation only where an
	// item is of it. Each item is checked against those that [Limit.Checks]
	// tells; all of their windows and meters are made live.
	Limits []Limit
	Items  []Item
	// Newest is the newest charge the caller saw acknowledged; zero: none.
	Newest Acknowledged
	// Observe: locks of the whole budget refuse nothing. Those of its limits are as
	// the limits' own Observe says.
	Observe bool
}

// Acknowledged is a charge that a store has acknowledged.
type Acknowledged struct {
	ID string
	At int64 // its time in µs on the store's clock
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
)

// Decision is the answer for one item.
type Decision struct {
	Result   Result
	Replayed bool
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
}

// Finish settles or releases a reservation.
type Finish struct {
	Budget string
	// Now is the caller's wall clock in µs, a witness.
	Now int64
	ID  string
	// Release: the call was never sent. Else Units is its actual cost, 0 to
	// MaxUnits, also above what was reserved.
	Release bool
	Units   int64
	// Age in µs, 0 or more: it ended that long ago, at the earliest at its charge.
	Age      int64
	Deadline time.Time // as in Item
}

// FinishResult is what became of a Finish.
type FinishResult int

// The results of a Finish.
const (
	Settled        FinishResult = iota + 1 // recorded, or a replay of it
	Released                               // given back, or a replay of it
	FinishConflict                         // finished another way before, or a plain charge
	FinishExpired                          // released past the lease's end, or the id is not held
	FinishLate                             // the deadline had passed; nothing was done
	FinishOverflow                         // a sum would pass MaxUnits
)

// Finished is the answer to a Finish.
type Finished struct {
	Result   FinishResult
	Replayed bool
	// At is its score then.
	At int64
	// Now is the clock that frees, not clamped.
	Now int64
}

// Look asks what limits have used.
type Look struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	Limits []Limit
	Newest Acknowledged // as in Batch
}

// View is the answer to a Look, limit by limit.
type View struct {
	Now    int64 // the clock that frees, not clamped
	Limits []LimitView
	Locks  []LockView // those that stand, in the order of their limits' names
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

// Recovery is what a caller saw of a budget before data was lost.
type Recovery struct {
	Budget string
	Now    int64   // the caller's wall clock in µs, a witness
	Limits []Limit // all of the budget, as in Batch
	Used   []int64 // what each had used; below 0: not seen
	At     int64   // when it was seen, µs on the store's clock
	Newest Acknowledged
}

// Recovered is the answer to a Recovery.
type Recovered struct {
	Now int64 // the clock that frees, not clamped
	// Amounts is what stands recovered in each limit now, in what it counts; of a
	// bucket what was added.
	Amounts []int64
	// Anew: the ledger was damaged and was begun anew.
	Anew bool
}

// recoveredPrefix opens the names of the pseudo-operations; no operation's name
// holds a slash.
const recoveredPrefix = "recovered/"

// RecoveredOperation is the pseudo-operation of what was lost of a limit. Only
// the limit of that name covers it.
func RecoveredOperation(limit string) string { return recoveredPrefix + limit }

// IsPseudo reports whether an operation is a pseudo-operation.
func IsPseudo(operation string) bool {
	_, ok := pseudoLimit(operation)
	return ok
}

// pseudoLimit is the limit that a pseudo-operation is of.
func pseudoLimit(operation string) (limit string, ok bool) {
	if limit, ok = strings.CutPrefix(operation, recoveredPrefix); ok {
		return limit, true
	}
	return strings.CutPrefix(operation, driftPrefix)
}

// RecoveredID is the id of its charge; no call's id holds a space.
func RecoveredID(limit string) string { return " " + recoveredPrefix + limit }

// GroupBy names what a [SpentQuery] tells apart.
type GroupBy string

// What spent units may be grouped by.
const (
	ByOperation GroupBy = "operation"
	ByJob       GroupBy = "job"
	ByRegion    GroupBy = "region"
	ByRun       GroupBy = "run"
)

// SpentQuery asks who spent what.
type SpentQuery struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	// Span in µs: entries whose score is above now − Span count, open
	// reservations always; 0 for all that is held.
	Span int64
	By   GroupBy
}

// SpentView is the answer to a SpentQuery.
type SpentView struct {
	Now int64 // the clock that frees, not clamped
	// Since is the instant (µs) up to which the ledger has forgotten what
	// finished; 0 when it has forgotten nothing.
	Since int64
	// Rows are in no order. Released entries are not among them.
	Rows []SpentRow
}

// SpentRow is what one group spent. The empty name stands for charges without
// that label, and for runs that were merged.
type SpentRow struct {
	Name  string
	Units int64 // of open reservations what was reserved
	Calls int64
	Open  int64 // reservations that are open: their lease has not ended
	// Observed is how many of Calls would have been refused, but for observe mode.
	Observed int64
}
