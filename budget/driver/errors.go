package driver

import "errors"

// The errors of a store. Test for them with errors.Is.
var (
	// ErrUnavailable: the store did not answer within the timeout. It is unknown
	// whether a charge was recorded; send the same id again.
	ErrUnavailable = errors.New("store out of reach")
	// ErrNotCharged accompanies another error if it is known that nothing was charged.
	ErrNotCharged = errors.New("nothing was charged")
	// ErrClock: the store's clock is more than 60 s past everything it has seen and past
	// the caller's clock, and nothing expires until a person accepts it; or the caller's
	// clock is more than MaxLease past the store's. The daemon also returns it for a tick
	// that is more than 60 s past the store's clock.
	ErrClock = errors.New("the clocks disagree")
	// ErrDamaged: the ledger's parts do not agree (a key was evicted or deleted).
	// Nothing is decided on it.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrLost: the ledger lacks a charge that was acknowledged. The data was flushed,
	// evicted or rolled back, or this is another server. Package outage records what is
	// missing; without that package nothing is decided until the ledger is reset.
	ErrLost = errors.New("the store has lost charges")
	// ErrStoreConfig: the store answers but cannot serve: wrong password,
	// missing permission, wrong type, newer version, unsupported file system.
	ErrStoreConfig = errors.New("the store is not usable as configured")
	// ErrInvalid: the call itself is wrong: a bad id, label, lease or name.
	ErrInvalid = errors.New("invalid call")
	// ErrTooManyUnits: units are not within 0 to [limit.MaxUnits], or the ledger's sum
	// would exceed that.
	ErrTooManyUnits = errors.New("units out of range")
	// ErrClosed: the budget or store was closed.
	ErrClosed = errors.New("closed")
)
