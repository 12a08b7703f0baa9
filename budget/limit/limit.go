package limit

import (
	"errors"
	"fmt"
	"strings"
)

// MaxUnits is the largest cost, quota or sum, in units.
const MaxUnits int64 = 1e15

// Counts says what a limit adds up.
type Counts string

// What a limit may count.
const (
	CountUnits Counts = "units"
	CountCalls Counts = "calls"
)

// Limit is one bound on a budget, as resolved from the configuration: what the operations
// that it covers may spend over a window.
type Limit struct {
	// Name is a letter or digit, then up to 62 letters, digits, dots, underscores and dashes.
	Name string
	// Quota is what the upstream grants, and Headroom what is kept back from it. Both are
	// 0 for a cap of your own, which has only a Limit.
	Quota    int64
	Headroom int64
	// Limit is what may be spent: the cap itself, or Quota − Headroom.
	Limit int64
	// Auto is the most that an automatic headroom may be; 0: the headroom is fixed. As
	// configured, Headroom is Auto; package budget lowers it by what the upstream has
	// reported. Only a rolling or a calendar limit with a quota can have it.
	Auto int64
	// OutagePart is the part of Headroom that all hosts together may spend while the
	// store is out of reach. A call with UseHeadroom may not spend it.
	OutagePart int64
	// Counts is CountUnits or CountCalls; there is no default.
	Counts Counts
	Window Window
	// Operations are names, "prefix.*" and "!name"; empty covers all.
	Operations []string
	// Observe: the limit refuses nothing; charges that it would have refused are marked.
	Observe bool
	// Shares divide the limit among jobs.
	Shares []Share
	// PerOperation makes it a separate limit for each operation that it covers; see
	// [Limit.For]. A store never gets such a limit.
	PerOperation bool
}

// For is the limit for one operation: the limit itself, or, with PerOperation, that
// operation's own limit, named "name:operation".
func (l Limit) For(operation string) Limit {
	if l.PerOperation {
		l.Name, l.Operations, l.PerOperation = l.Name+":"+operation, []string{operation}, false
	}
	return l
}

// Configured is the name that the configuration has: without the operation of [Limit.For].
func (l Limit) Configured() string {
	name, _, _ := strings.Cut(l.Name, ":")
	return name
}

// CoversAll reports whether the limit covers every operation.
func (l Limit) CoversAll() bool { return len(l.Operations) == 0 }

// Covers reports whether the limit counts the operation. It covers what a name or prefix
// matches and no exception ("!name") does. With exceptions alone, it covers all other
// operations.
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
			if MatchOperation(except, operation) {
				return false
			}
			continue
		}
		named = true
		covered = covered || MatchOperation(pattern, operation)
	}
	return covered || !named
}

// CoversBeyond reports whether the limit may cover an operation other than the known
// ones. A ledger that can distinguish no more operations counts further ones as
// driver.OtherOperation, in every limit that may cover one, so that no limit is
// overspent.
func (l Limit) CoversBeyond(known func(operation string) bool) bool {
	named := false
	for _, pattern := range l.Operations {
		if strings.HasPrefix(pattern, "!") {
			continue
		}
		named = true
		if !known(pattern) { // a prefix is never an operation's name either
			return true
		}
	}
	return !named
}

// MatchOperation matches a name or a "prefix.*".
func MatchOperation(pattern, operation string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(operation, prefix)
	}
	return pattern == operation
}

// Amount is how much a call that costs units counts in this limit.
func (l Limit) Amount(units int64) int64 {
	if l.Counts == CountCalls {
		return 1
	}
	return units
}

// Bound is the highest use that this limit allows after a call: the limit less the floor.
// With useHeadroom it is the quota less OutagePart and the floor. A floor is in units, so
// it does not apply to limits that count calls.
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

// WithHeadroom is the limit with another headroom of its quota.
func (l Limit) WithHeadroom(headroom int64) Limit {
	l.Headroom, l.Limit = headroom, l.Quota-headroom
	return l
}

// Remaining is what is left of the limit, 0 or more.
func (l Limit) Remaining(used int64) int64 { return max(0, l.Limit-used) }

// Validate returns the first error found in the limit.
func (l Limit) Validate() error {
	for what, n := range map[string]int64{"limit": l.Limit, "quota": l.Quota, "headroom": l.Headroom, "outage part": l.OutagePart} {
		if n < 0 || n > MaxUnits {
			return fmt.Errorf("a %s of %d: use 0 to %d", what, n, MaxUnits)
		}
	}
	switch {
	case l.Quota > 0 && l.Limit != l.Quota-l.Headroom:
		return fmt.Errorf("its limit is %d, but its quota of %d less its headroom of %d is %d", l.Limit, l.Quota, l.Headroom, l.Quota-l.Headroom)
	case l.Auto < 0 || l.Auto > 0 && (l.Auto >= l.Quota || l.Headroom > l.Auto):
		return fmt.Errorf("an automatic headroom of at most %d with a quota of %d and a headroom of %d: use less than the quota, and at least the headroom", l.Auto, l.Quota, l.Headroom)
	case l.Auto > 0 && !l.CanDivide():
		return fmt.Errorf("an automatic headroom in a %s limit: only a rolling or a calendar limit can have one", l.Window.Kind)
	case l.Counts != CountUnits && l.Counts != CountCalls:
		return fmt.Errorf("it counts %q: use CountUnits or CountCalls", l.Counts)
	case l.Window.Kind == Concurrent && l.Counts != CountCalls:
		return errors.New("it counts open reservations: use CountCalls")
	}
	if err := l.validateShares(); err != nil {
		return err
	}
	if err := l.Window.validate(); err != nil || l.Window.Kind != Bucket {
		return err
	}
	return l.CheckBucket()
}
