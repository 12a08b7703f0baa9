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
	// Once: requests that carry this value are part of an upload or a session,
	// which is charged once, whatever the operation of its requests. Nil: every request is charged.
	Once *feedback.Key
	// Actual are the places where a response may say what it cost, in the order in
	// which they are looked at. None: it cost Units.
	Actual []feedback.Source
	// NotModified is what a call cost that was answered with 304, where no place tells;
	// nil: as any other.
	NotModified *int64
}

// Unknown says what happens to operations without a price.
type Unknown struct {
	// Allowed operations cost Units; otherwise they are refused.
	Allowed bool
	Units   int64
}

// Spec is all a Budget needs to know, as resolved from a configuration by
// [config.Config.Spec] or written by hand.
type Spec struct {
	// Name is upstream/credential.
	Name    string
	Limits  []limit.Limit
	Costs   map[string]Cost
	Unknown Unknown
	// OnStoreError is the upstream's policy; the first that is set counts: call,
	// operation, job, upstream, closed.
	OnStoreError Policy
	// Jobs are what jobs say of the charges that carry their labels, by name. It is
	// shared, and never changed.
	Jobs map[string]JobSays
	// Timeout bounds one decision of the store; 0 means DefaultTimeout.
	Timeout time.Duration
	// Observe: nothing is refused; what would have been is marked.
	Observe bool
	// Feedback is what responses say about the quota.
	Feedback feedback.Rules
}

// DefaultTimeout bounds a decision where a Spec sets none.
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
