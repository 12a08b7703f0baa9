package driver

import "github.com/quotactl/quotactl/budget/limit"

// Mark is a ledger's state as a caller last received it. It lets the store notice what
// the ledger has lost since.
type Mark struct {
	// Ledger is the ledger's random id. It changes whenever a loss is noticed; a [Reset]
	// keeps it. Empty: the ledger has none yet.
	Ledger string
	// Changes counts the charges, settlements, releases, recoveries, reports that added
	// something, locks that were set and locks that were ended, so far. It never falls.
	Changes int64
	// ID is the newest charge of any caller, and At its time in µs on the store's clock;
	// an empty ID: there is none.
	ID string
	At int64
	// Seen is the instant (µs on the store's clock) at which all this was true.
	Seen int64
	// Kept is up to when (likewise) the ledger is there for sure, even if nobody uses it. 0: not
	// known, because an older version noted the mark.
	Kept int64
}

// Dropped reports whether the mark's ledger may have been dropped as idle: before another was
// born, or there is none at that time. lower is what is forgotten then.
func (m Mark) Dropped(born, lower int64) bool {
	if m.Kept == 0 {
		return m.Seen <= lower-LedgerIdle
	}
	return m.Kept <= born
}

// MaxOthers is the most marks that a caller passes besides the newest.
const MaxOthers = 256

// Recovery records what a caller saw of a budget before data was lost. The answer is
// [Recovered].
type Recovery struct {
	Budget string
	Now    int64         // the caller's wall clock in µs, a witness
	Limits []limit.Limit // all of the budget, as in Batch
	Used   []int64       // what each had used; below 0: unknown
	// Own is how much of Used the caller's own host charged and the ledger lacks, as far
	// as the caller knows; nil: nothing. OwnID is the host's id: a later recovery with
	// the same id covers the same charges, or more.
	Own   []int64
	OwnID string
	At    int64 // when the caller saw it, µs on the store's clock
	Mark  Mark  // the mark that the caller had then
	// Gone are the ids of the ledgers that the caller knows to have lost something,
	// Mark's included; at most MaxGone.
	Gone []string
	// Host and Hosts are as in Batch.
	Host  string
	Hosts int64
}

// OwnOf is what the caller's own host charged in a limit, and the id of the charge that
// records it; 0: unknown.
func (r Recovery) OwnOf(i int) (amount int64, id string) {
	if r.OwnID == "" || i >= len(r.Own) {
		return 0, ""
	}
	return r.Own[i], limit.RecoveredID(r.Limits[i].Name) + " " + r.OwnID
}

// MaxGone is the most ledger ids that a Recovery holds.
const MaxGone = 64

// Recovered is the answer to a Recovery.
type Recovered struct {
	Now int64 // the earlier clock
	// Amounts is how much counts as recovered in each limit now; for a bucket, what was
	// added.
	Amounts []int64
	Anew    bool // the ledger was damaged, and a new one was begun
	Mark    Mark // the ledger's after the recovery
}

// LedgerIdle is how long older versions kept a ledger after its last charge had stopped
// counting, in µs.
const LedgerIdle = WindowIdle

// RecoveryWait is the longest that a loss holds charges back if several hosts share the
// store, in µs since the loss was noticed.
const RecoveryWait int64 = 60_000_000

// HostNoted is how long a host counts as at work after a decision, in µs.
const HostNoted int64 = 24 * 3_600_000_000

// MaxHosts is how many hosts at work a ledger distinguishes: the latest ones.
const MaxHosts = 64

// MaxReports is how many hosts a ledger notes as having reported a loss.
const MaxReports = 256

// HostRenewed is the age in µs at which a host's noted decision is renewed.
const HostRenewed int64 = 3_600_000_000
