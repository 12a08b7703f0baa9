package driver

import "context"

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
// [limit.Window.Cut] of now, released ones never; a window of kind Concurrent is one
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
// Buckets. A meter of the shape [limit.Limit.Meter] begins with the first decision
// that carries it and is dropped as a window is, for [limit.Limit.Longest]. From then
// on every new charge it covers adds to it, whatever limits the charge's own
// batch carries: [limit.Refill.Add] at now; so does a settlement,
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
// Lost data. A batch and a look carry the caller's Mark. Something is lost, and
// nothing is decided but ErrLost answered, when its charge is missing, or one of the Others' of a batch (no entry has
// its id, and its time is above what is forgotten at now and what is merged), or
// when the ledger has another id or fewer Changes than the mark, and the mark was
// Seen after the last reset and less than LedgerIdle before what is forgotten at
// now: after that a ledger that nobody used may have vanished. Recover records what is missing. A ledger
// that is created gets a new random id, and so does one that turns out to be rolled
// back: its own id is among the Recovery's Gone. Every answer tells the mark that
// is to be given next.
//
// Recovering. A loss is noticed by the Recovery that finds it first: the first one
// on a ledger, or one that finds it rolled back; it and each later one of the ledger
// note their Host as having reported. For RecoveryWait from the notice, while fewer hosts
// have reported than a batch's Hosts, its items are refused as by a lock of the
// whole budget, with Recovering, unless they are Recorded or WithinPart.
//
// Hosts. Decide notes the Host of its batch, anew when the noted instant is older
// than HostRenewed; the answer tells how many were noted within HostNoted.
//
// Fences. An item whose Fence names a lock that stands is Fenced, whatever became
// of its id; a late one is Late, and one that is Recorded asks for no fence.
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
// the window's cut at now, on a calendar when it lies in the [limit.Window.Span] of now,
// and when its reset is above now; on a concurrent limit never. What it says is used
// above the more of what is used now and what Seen says is added to the limit's
// charge under [limit.DriftOperation], which counts in that limit alone. Of a rolling
// window the charge's score is the reset less the window's Length, at most now,
// which it is without a reset; of a calendar the first that counts; never below that
// of the charge that stands, nor below what is forgotten; it is never merged. A bucket is
// filled up to what the report says less what has drained since At.
//
// Errors of all methods: ErrUnavailable when the store did not answer in time
// (the outcome is then unknown, unless it is ErrNotCharged too), ErrStoreConfig when it cannot serve as it is
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
	Spent(ctx context.Context, query SpentQuery) (Spent, error)
	// Change makes a rare change of a ledger; callers use [Apply]. A store answers
	// a change that it does not know with [Unknown].
	Change(ctx context.Context, change Change) (Changed, error)
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
