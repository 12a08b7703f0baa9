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

// registry is the names of a ledger's operations in the order of their numbers (from 1).
// It is immutable, so that the keys and arguments of a script run match.
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

// registry returns a ledger's operations as last seen.
func (s *Store) registry(name string) registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ledgers[name]; r != nil {
		return *r
	}
	return registry{}
}

// How many ledgers and clocks a store remembers. A forgotten one costs its next call
// another script run.
const (
	maxLedgers = 1 << 12
	maxClocks  = 1 << 16
)

// remembered returns the value under a name, or a new one, in a map of at most most.
func remembered[V any](all map[string]*V, name string, most int) *V {
	one := all[name]
	if one == nil {
		for other := range all {
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

// remember notes a ledger's operations.
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

// with returns the registry with the operations of items, and the new ones. Beyond the
// maximum, operations become OtherOperation.
func (r registry) with(items []driver.Item) (registry, []string) {
	operations := make([]string, len(items))
	for i, item := range items {
		operations[i] = item.Operation
	}
	return r.withNames(operations)
}

// withNames is with for operations. Pseudo-operations never become OtherOperation.
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

// told counts the names that are not pseudo-operations.
func told(names []string) int {
	n := len(names)
	for _, name := range names {
		if limit.IsPseudo(name) {
			n--
		}
	}
	return n
}

// number is an operation's number. An operation without one has OtherOperation's.
func (r registry) number(operation string) int {
	if i := slices.Index(r.names, operation); i >= 0 {
		return i + 1
	}
	return slices.Index(r.names, driver.OtherOperation) + 1
}

// covered are the numbers of the operations that a limit counts, in order. If the registry
// is full, OtherOperation counts in every limit that may cover an operation in it.
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
