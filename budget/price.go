package budget

import (
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// Cost is the price of an operation.
type Cost struct {
	Units        int64
	OnStoreError Policy // empty: the upstream's
	// Match are the patterns of its requests; see [feedback.Route].
	Match []string
	// Once: requests that carry this value belong to an upload or a session, which is
	// charged once, whatever the operation of its requests. Nil: every request is charged.
	Once *feedback.Key
	// Actual lists where a response may say what it cost, in the order in which the
	// places are read. If no place has a value, the call cost Units.
	Actual []feedback.Source
	// NotModified is the cost of a call that was answered with 304, if no place in Actual
	// has a value; nil: Units.
	NotModified *int64
	// LeaseUnits above 0: a daemon charges so many units at a time and hands them out to
	// its callers ([Lease]).
	LeaseUnits int64
}

// Unknown says what happens to operations without a price.
type Unknown struct {
	// Allowed operations cost Units; otherwise they are refused.
	Allowed bool
	Units   int64
}

// Spec is all that a Budget is made from. [config.Config.Spec] resolves it from a
// configuration; you can also write it by hand.
type Spec struct {
	// Name is upstream/credential.
	Name    string
	Limits  []limit.Limit
	Costs   map[string]Cost
	Unknown Unknown
	// OnStoreError is the upstream's policy. The first that is set counts: the call's,
	// the operation's, the job's, the upstream's, Closed.
	OnStoreError Policy
	// Jobs are the jobs' settings for charges with their label, by the job's name. The
	// map is shared and never changed.
	Jobs map[string]JobSays
	// Timeout bounds one decision of the store; 0 means DefaultTimeout. A store that is
	// asked again past it, as package outage does with Redis, bounds the decision itself.
	Timeout time.Duration
	// Observe: nothing is refused; charges that would have been refused are marked.
	Observe bool
	// Feedback says how to read what responses say about the quota.
	Feedback feedback.Rules
	// WaitDir is a directory that the processes of a host share: through it, calls that wait are
	// served in order over all of them. Empty: each process has an order of its own.
	WaitDir string
	// Store identifies the store: budgets with the same name and Store share a ledger. Empty: unknown.
	Store string
}

// DefaultTimeout bounds a decision if a Spec sets no timeout.
const DefaultTimeout = 2 * time.Second

// price is what the call costs.
func (s *Spec) price(c Call) (int64, error) {
	if c.Units != nil {
		if _, known := s.Costs[c.Operation]; known || s.Unknown.Allowed {
			return *c.Units, nil
		}
		return 0, ErrUnknownOperation
	}
	if cost, known := s.Costs[c.Operation]; known {
		return cost.Units, nil
	}
	if s.Unknown.Allowed {
		return s.Unknown.Units, nil
	}
	return 0, ErrUnknownOperation
}
