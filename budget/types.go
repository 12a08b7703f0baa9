package budget

import "github.com/quotactl/quotactl/budget/driver"

// Labels say who spent the units. A job's settings ([JobSays]) apply to charges with its
// label; otherwise labels change no decision.
type Labels = driver.Labels

// Policy says what a call gets when the store is out of reach.
type Policy = driver.Policy

// The policies of on_store_error. An empty Policy means the next one of: the call's, the
// operation's, the job's, the upstream's, Closed.
const (
	Closed = driver.Closed
	Open   = driver.Open
)

// MaxLease is the longest a reservation may stay open.
const MaxLease = driver.MaxLease

// GroupBy names what [Budget.Spent] groups by.
type GroupBy = driver.GroupBy

// What spent units may be grouped by.
const (
	ByOperation = driver.ByOperation
	ByJob       = driver.ByJob
	ByRegion    = driver.ByRegion
	ByRun       = driver.ByRun
)

// SpentRow is what one group spent.
type SpentRow = driver.SpentRow

// The errors of a store, to test with errors.Is. Package driver says what each means.
var (
	ErrUnavailable  = driver.ErrUnavailable
	ErrInvalid      = driver.ErrInvalid
	ErrTooManyUnits = driver.ErrTooManyUnits
	ErrNotCharged   = driver.ErrNotCharged
	ErrClock        = driver.ErrClock
	ErrDamaged      = driver.ErrDamaged
	ErrLost         = driver.ErrLost
	ErrStoreConfig  = driver.ErrStoreConfig
	ErrClosed       = driver.ErrClosed
)
