package redisstore

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// registry is the names of a ledger's operations in the order of their numbers
// (from 1). It is not changed once it is made, so that one script run sends keys
// and arguments that belong together.
type registry struct {
	names []string
	sig   string // the SHA-1 of the names joined by commas; empty for none
}

func newRegistry(names []string) registry {
	if len(names) == 0 {
		return registry{}
	}
	sum := sha1.Sum([]byte(strings.Join(names, ","))) //nolint:gosec // see the import
	return registry{names: names, sig: hex.EncodeToString(sum[:])}
}

// registry is what was last seen of a ledger's operations.
func (s *Store) registry(name string) registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ledgers[name]; r != nil {
		return *r
	}
	return registry{}
}

// How many ledgers and clocks a store remembers; what was forgotten of one costs
// its next call another run of a script.
const (
	maxLedgers = 1 << 12
	maxClocks  = 1 << 16
)

// remembered is what is kept under a name, in a map of at most so many.
func remembered[V any](all map[string]*V, name string, most int) *V {
	one := all[name]
	if one == nil {
		for other := range all { // whichever comes first
			if len(all) < most {
				break
			}
			delete(all, other)
		}
		one = new(V)
		all[name] = one
	}
	return one
}

// remember notes the operations as a script told or registered them.
func (s *Store) remember(name string, r registry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*remembered(s.ledgers, name, maxLedgers) = r
}

func splitNames(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// with is the registry with the operations of items, and those that are new.
// Operations beyond those told apart become OtherOperation.
func (r registry) with(items []driver.Item) (registry, []string) {
	operations := make([]string, len(items))
	for i, item := range items {
		operations[i] = item.Operation
	}
	return r.withNames(operations)
}

// withNames is the registry with operations, and those that are new. What was
// recovered of a limit is always told apart.
func (r registry) withNames(operations []string) (registry, []string) {
	names := slices.Clone(r.names)
	for _, operation := range operations {
		if !limit.IsPseudo(operation) && !slices.Contains(names, operation) && told(names) >= driver.MaxOperations-1 {
			operation = driver.OtherOperation
		}
		if !slices.Contains(names, operation) {
			names = append(names, operation)
		}
	}
	if len(names) == len(r.names) {
		return r, nil
	}
	return newRegistry(names), names[len(r.names):]
}

// told is how many operations of the budget's own are among the names.
func told(names []string) int {
	n := len(names)
	for _, name := range names {
		if limit.IsPseudo(name) {
			n--
		}
	}
	return n
}

// number is an operation's number; one beyond those told apart has the number
// of OtherOperation.
func (r registry) number(operation string) int {
	if i := slices.Index(r.names, operation); i >= 0 {
		return i + 1
	}
	return slices.Index(r.names, driver.OtherOperation) + 1
}

// covered are the numbers of the operations a limit counts, in order: once
// operations are counted under OtherOperation, in every limit that may cover
// one of them.
func (r registry) covered(limit limit.Limit) []int {
	list := []int{}
	for i, name := range r.names {
		counts := limit.Covers(name)
		if name == driver.OtherOperation && told(r.names) >= driver.MaxOperations {
			counts = counts || limit.CoversBeyond(func(operation string) bool { return slices.Contains(r.names, operation) })
		}
		if counts {
			list = append(list, i+1)
		}
	}
	return list
}

// keys are all keys of a ledger with these operations.
func (s *Store) keys(name string, r registry) []string {
	keys := []string{s.key(name, "m"), s.key(name, "e"), s.key(name, "x")}
	for i := range r.names {
		no := strconv.Itoa(i + 1)
		keys = append(keys, s.key(name, "z:"+no), s.key(name, "y:"+no), s.key(name, "r:"+no))
	}
	return keys
}
