package budget

import "github.com/quotactl/quotactl/budget/driver"

// Labels say who spent the units. What a job of the configuration says of its
// charges ([JobSays]) holds for those with its label; else labels change no
// decision.
type Labels = driver.Labels

// Policy says what a call gets when the store is out of reach.
type Policy = driver.Policy

// The policies of on_store_error. The empty Policy asks the next one in turn:
// call, operation, job, upstream, closed.
const (
	Closed = driver.Closed
	Open   = driver.Open
)

// MaxLease is the longest a reservation may stay open.
const MaxLease = driver.MaxLease

// GroupBy names what [Budget.Spent] tells apart.
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

// What a store may say, to test with errors.Is; package driver says what each
// means.
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
