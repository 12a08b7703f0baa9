package driver

import "context"

// Store keeps the ledgers of budgets and decides on them, as CONTRACT.md in this
// directory says. It is safe for concurrent use by goroutines and, where it says so, by
// processes and machines. All instants are int64 microseconds of its own clock.
//
// Every method may return ErrUnavailable (the outcome is then unknown, unless it is
// ErrNotCharged too), ErrStoreConfig, ErrClock, ErrDamaged, ErrClosed and the context's
// error; Decide and Look also ErrLost.
type Store interface {
	// Decide decides a batch of 0 to MaxBatch items for one budget, in order, each in one
	// atomic step: other callers' calls may come between two items. A bad item fails alone,
	// in its Decision. Items with the same id are replays of the first.
	Decide(ctx context.Context, batch Batch) (Decisions, error)
	// Finish settles or releases reservations, in order, each in one atomic step. A bad one
	// fails alone, in its Finished. After an error some may be done: finish all again.
	Finish(ctx context.Context, finishes Finishes) ([]Finished, error)
	// Look reads what the limits have used, without spending.
	Look(ctx context.Context, look Look) (View, error)
	// Spent sums what the ledger holds, without spending. It reads in bounded steps:
	// charges made meanwhile may be included or not.
	Spent(ctx context.Context, query SpentQuery) (Spent, error)
	// History reads what was charged hour by hour, without spending.
	History(ctx context.Context, query HistoryQuery) (History, error)
	// Budgets lists the budgets of an upstream that have a ledger, at most so many of them, in no
	// particular order. With Redis its cost grows with the keys of the server.
	Budgets(ctx context.Context, upstream string, most int) ([]string, error)
	// Export reads a whole ledger, or the entries that limits count, without spending.
	// Charges made meanwhile may be included or not; every charge acknowledged before is
	// included, except as LedgerWriter says.
	Export(ctx context.Context, export Export, to LedgerWriter) error
	// Change makes a rare change of a ledger; callers use [Apply]. For a change that it
	// does not know, a store returns [Unknown].
	Change(ctx context.Context, change Change) (Changed, error)
	// Close frees the store's resources. It is idempotent.
	Close() error
}

// ClockTolerance is how far the store's clock may be past both last seen and the
// caller's clock, in µs.
const ClockTolerance int64 = 60_000_000

// MinHeld is the shortest time that an id is held, in µs.
const MinHeld int64 = 3_600_000_000

// WindowUseNoted is the age in µs at which a window's noted last use is renewed.
const WindowUseNoted int64 = 3_600_000_000

// WindowIdle is how long past its longest length an unused window lives, in µs.
const WindowIdle int64 = 7 * 24 * 3_600_000_000

// MaxOperations is how many operations one ledger distinguishes; further ones count as
// OtherOperation.
const MaxOperations = 256

// MaxPairs is how many pairs of an operation and a pattern of a share's jobs one ledger
// counts apart. The charges of further ones count as nobody's: others' guarantees still
// hold, and the share's own may not.
const MaxPairs = 512

// MaxPatterns is how many patterns of the shares' jobs one ledger distinguishes.
const MaxPatterns = 256

// OtherOperation stands for the operations beyond MaxOperations.
const OtherOperation = "other"
