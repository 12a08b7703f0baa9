package budget

import "strings"

// Counts says what a limit adds up.
type Counts string

// What a limit may count.
const (
	CountUnits Counts = "units"
	CountCalls Counts = "calls"
)

// Limit is one bound on a budget, resolved: what may be spent over a window by
// the operations it covers.
type Limit struct {
	Name string
	// Quota is what the upstream grants and Headroom what is kept back of it;
	// both 0 for a cap of our own, which has a Limit alone.
	Quota    int64
	Headroom int64
	// Limit is what may be spent: Quota less Headroom, or the cap itself.
	Limit int64
	// OutagePart is the part of Headroom, over all hosts, that is kept for
	// spending while the store is out of reach: leave to spend headroom stops
	// short of it.
	OutagePart int64
	Counts     Counts
	Window     Window
	// Operations are names, "prefix.*" and "!name"; empty covers all.
	Operations []string
	// Observe: it refuses nothing; what it would have refused is marked.
	Observe bool
	// PerOperation makes it one limit for each operation it covers; see
	// [Limit.For]. A store is never given such a limit.
	PerOperation bool
}

// For is the limit as it stands for one operation: itself, or the operation's
// own where there is one for each. Its name is then "name:operation".
func (l Limit) For(operation string) Limit {
	if l.PerOperation {
		l.Name, l.Operations, l.PerOperation = l.Name+":"+operation, []string{operation}, false
	}
	return l
}

// CoversAll reports whether the limit covers every operation.
func (l Limit) CoversAll() bool { return len(l.Operations) == 0 }

// Covers reports whether the limit counts the operation. Names and prefixes
// are added up, exceptions ("!name") are taken off; exceptions alone are taken
// off everything.
func (l Limit) Covers(operation string) bool {
	if limit, ok := pseudoLimit(operation); ok {
		return limit == l.Name && l.Window.Kind != Bucket
	}
	if l.CoversAll() {
		return true
	}
	named, covered := false, false
	for _, pattern := range l.Operations {
		if except, ok := strings.CutPrefix(pattern, "!"); ok {
			if matchOperation(except, operation) {
				return false
			}
			continue
		}
		named = true
		covered = covered || matchOperation(pattern, operation)
	}
	return covered || !named
}

// Checks reports whether an item is checked against the limit: when it covers
// the item's operation, and, where it counts open reservations, the item is one.
func (l Limit) Checks(item Item) bool {
	return l.Covers(item.Operation) && (l.Window.Kind != Concurrent || item.Lease > 0)
}

// CoversBeyond reports whether the limit may cover an operation that is not
// among the known. A ledger that tells no more operations apart counts further
// ones as [OtherOperation] in every limit that may cover one, so that none is
// overspent.
func (l Limit) CoversBeyond(known func(operation string) bool) bool {
	named := false
	for _, pattern := range l.Operations {
		if strings.HasPrefix(pattern, "!") {
			continue
		}
		named = true
		if !known(pattern) { // a prefix too is never an operation's name
			return true
		}
	}
	return !named
}

// matchOperation matches a name or a "prefix.*".
func matchOperation(pattern, operation string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(operation, prefix)
	}
	return pattern == operation
}

// Amount is what a call of these units counts for in this limit.
func (l Limit) Amount(units int64) int64 {
	if l.Counts == CountCalls {
		return 1
	}
	return units
}

// Bound is the highest use this limit allows after a call: the limit less the
// floor, or with leave to spend headroom the quota less the hosts' outage part
// and the floor. A floor is units, so limits that count calls have none.
func (l Limit) Bound(floor int64, useHeadroom bool) int64 {
	bound := l.Limit
	if useHeadroom && l.Quota > 0 {
		bound = l.Quota - l.OutagePart
	}
	if l.Counts == CountCalls {
		return bound
	}
	return bound - floor
}

// Remaining is what is left of the limit, 0 or more.
func (l Limit) Remaining(used int64) int64 { return max(0, l.Limit-used) }

// LeastRemaining is which of the limits that an item is checked against has the
// least left, and how much: limits that count units come before those that count
// calls, the first of equals before the others. −1 when there is none. used
// tells what the limit at an index has used.
func LeastRemaining(limits []Limit, item Item, used func(i int) int64) (limit int, left int64) {
	limit = -1
	for _, calls := range []bool{false, true} {
		for i, l := range limits {
			if (l.Counts == CountCalls) != calls || !l.Checks(item) {
				continue
			}
			if remaining := l.Remaining(used(i)); limit < 0 || remaining < left {
				limit, left = i, remaining
			}
		}
		if limit >= 0 {
			break
		}
	}
	return limit, left
}
