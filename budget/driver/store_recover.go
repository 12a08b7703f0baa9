package driver

import "github.com/quotactl/quotactl/budget/limit"

// Mark is what a caller was last told of a ledger. Given back, it lets the store
// notice what the ledger has lost since.
type Mark struct {
	// Ledger is the ledger's random id: it changes with every loss that is noticed,
	// and [Store.Reset] keeps it. Empty: the ledger has none yet.
	Ledger string
	// Changes counts the charges, settlements, releases, recoveries and reports so
	// far; it never falls.
	Changes int64
	// ID and At are the newest charge of any caller, and its time in µs on the
	// store's clock; an empty ID: there is none.
	ID string
	At int64
	// Seen is the instant (µs on the store's clock) of which all this is told.
	Seen int64
}

// MaxOthers is how many marks a caller gives back at most besides the newest.
const MaxOthers = 256

// Recovery is what a caller saw of a budget before data was lost.
type Recovery struct {
	Budget string
	Now    int64         // the caller's wall clock in µs, a witness
	Limits []limit.Limit // all of the budget, as in Batch
	Used   []int64       // what each had used; below 0: not seen
	// Own is how much of that the caller's host charged itself and the ledger lacks, as
	// far as the caller knows; nil: nothing. OwnID is the host's id: told again, it is of
	// the same charges, or more of them.
	Own   []int64
	OwnID string
	At    int64 // when it was seen, µs on the store's clock
	// Mark is what the caller was told then.
	Mark Mark
	// Gone are the ids of ledgers of which the caller knows that they lost
	// something, that of Mark too; at most MaxGone.
	Gone []string
	// Host and Hosts are as in Batch.
	Host  string
	Hosts int64
}

// OwnOf is what the caller's host charged itself of a limit, and the id of the charge
// that stands for it; 0 where nothing is told of that.
func (r Recovery) OwnOf(i int) (amount int64, id string) {
	if r.OwnID == "" || i >= len(r.Own) {
		return 0, ""
	}
	return r.Own[i], limit.RecoveredID(r.Limits[i].Name) + " " + r.OwnID
}

// MaxGone is how many ids of ledgers a Recovery tells at most.
const MaxGone = 64

// Recovered is the answer to a Recovery.
type Recovered struct {
	Now int64 // the clock that frees, not clamped
	// Amounts is what stands recovered in each limit now, in what it counts; of a
	// bucket what was added.
	Amounts []int64
	// Anew: the ledger was damaged and was begun anew.
	Anew bool
	// Mark is the ledger's after the recovery.
	Mark Mark
}

// LedgerIdle is for how long a ledger is kept after nothing counts of it any more,
// in µs: a ledger that is gone earlier was lost.
const LedgerIdle = WindowIdle

// RecoveryWait is for how long a loss holds charges back at most where several
// hosts share the store, in µs from its notice.
const RecoveryWait int64 = 60_000_000

// HostNoted is for how long a host counts as at work after a decision, in µs.
const HostNoted int64 = 24 * 3_600_000_000

// MaxHosts is how many hosts at work a ledger tells apart at most, the latest ones.
const MaxHosts = 64

// MaxReports is of how many hosts a ledger notes that they have reported a loss.
const MaxReports = 256

// HostRenewed is the age in µs at which a host's noted decision is renewed.
const HostRenewed int64 = 3_600_000_000
