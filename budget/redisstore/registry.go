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

// registry is the names of a ledger's operations, and of the pairs of an operation and a
// pattern, in the order of their numbers (from 1). The charges of jobs that a pattern
// matches are counted under pairs. It is immutable, so that the keys and arguments of a script run
// match.
type registry struct {
	names    []string
	patterns []string
	sig      string // the SHA-1 of both, as the script joins them; empty for none
}

func newRegistry(names, patterns []string) registry {
	if len(names)+len(patterns) == 0 {
		return registry{}
	}
	text := strings.Join(names, ",")
	if len(patterns) > 0 {
		text += ";" + strings.Join(patterns, ",")
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return registry{names: names, patterns: patterns, sig: hex.EncodeToString(sum[:])}
}

// splitFor returns the registry with the patterns of the limits' shares, and the new ones.
func (r registry) splitFor(limits []limit.Limit) (registry, []string) {
	patterns := slices.Clone(r.patterns)
	for _, pattern := range limit.Patterns(limits) {
		if !slices.Contains(patterns, pattern) && len(patterns) < driver.MaxPatterns {
			patterns = append(patterns, pattern)
		}
	}
	if len(patterns) == len(r.patterns) {
		return r, nil
	}
	return newRegistry(r.names, patterns), patterns[len(r.patterns):]
}

// paired is the name under which the ledger counts a job's charges of an operation: the
// pair if the job is counted apart, and the ledger has room for it.
func (r registry) paired(operation, job string) string {
	if !slices.Contains(r.names, operation) && !limit.IsPseudo(operation) && told(r.names) >= driver.MaxOperations-1 {
		operation = driver.OtherOperation
	}
	pattern := limit.PatternFor(r.patterns, job)
	if pattern == "" || limit.IsPseudo(operation) {
		return operation
	}
	pair := limit.Pair(operation, pattern)
	if !slices.Contains(r.names, pair) && len(pairsOf(r.names)) >= driver.MaxPairs {
		return operation
	}
	return pair
}

// pairsOf are the pairs among names.
func pairsOf(names []string) (list []string) {
	for _, name := range names {
		if _, pattern := limit.CutPair(name); pattern != "" {
			list = append(list, name)
		}
	}
	return list
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
	charges := make([]charge, 0, len(items))
	for _, item := range items {
		if item.IsHold() { // counted by operation alone: who is its share's, its job tells
			for _, operation := range item.Operations() {
				charges = append(charges, charge{operation: operation})
			}
			continue
		}
		charges = append(charges, charge{item.Operation, item.Labels.Job})
	}
	return r.withCharges(charges)
}

// charge is an operation and the job that it is charged for.
type charge struct{ operation, job string }

// withNames is with for operations without a job.
func (r registry) withNames(operations []string) (registry, []string) {
	charges := make([]charge, len(operations))
	for i, operation := range operations {
		charges[i].operation = operation
	}
	return r.withCharges(charges)
}

// withCharges is with for charges. Pseudo-operations never become OtherOperation.
func (r registry) withCharges(charges []charge) (registry, []string) {
	grown := registry{names: slices.Clone(r.names), patterns: r.patterns}
	for _, c := range charges {
		name := grown.paired(c.operation, c.job)
		base, _ := limit.CutPair(name)
		for _, one := range []string{base, name} { // a pair's operation is known too: it takes a place among them
			if !slices.Contains(grown.names, one) {
				grown.names = append(grown.names, one)
			}
		}
	}
	if len(grown.names) == len(r.names) {
		return r, nil
	}
	return newRegistry(grown.names, r.patterns), grown.names[len(r.names):]
}

// told counts the names that are operations of calls: neither pseudo-operations nor pairs.
func told(names []string) int {
	n := len(names)
	for _, name := range names {
		if _, pattern := limit.CutPair(name); limit.IsPseudo(name) || pattern != "" {
			n--
		}
	}
	return n
}

// number is the number under which a job's charges of an operation count. An operation
// without one has OtherOperation's.
func (r registry) number(operation, job string) int {
	for _, name := range []string{r.paired(operation, job), operation} {
		if i := slices.Index(r.names, name); i >= 0 {
			return i + 1
		}
	}
	return slices.Index(r.names, driver.OtherOperation) + 1
}

// shared are the numbers of the pairs of a share's jobs among covered ones.
func (r registry) shared(s limit.Share, covered []int) []int {
	list := []int{}
	for _, no := range covered {
		if _, pattern := limit.CutPair(r.names[no-1]); s.HasPattern(pattern) {
			list = append(list, no)
		}
	}
	return list
}

// covered are the numbers of the operations that a limit counts, in order. If the registry
// is full, OtherOperation counts in every limit that may cover an operation in it.
func (r registry) covered(l limit.Limit) []int {
	list := []int{}
	for i := range r.names {
		if r.counts(l, i+1) {
			list = append(list, i+1)
		}
	}
	return list
}

// counts reports whether a limit counts an operation, by number. For a bucket, it must
// agree with covers in lua/meters.lua.
func (r registry) counts(l limit.Limit, operation int) bool {
	name, _ := limit.CutPair(r.names[operation-1])
	if l.Covers(name) {
		return true
	}
	return name == driver.OtherOperation && told(r.names) >= driver.MaxOperations &&
		l.CoversBeyond(func(operation string) bool { return slices.Contains(r.names, operation) })
}

// keys are all keys of a ledger with these operations.
func (s *Store) keys(name string, r registry) []string {
	keys := []string{s.key(name, "m"), s.key(name, "e")}
	for i := range r.names {
		no := strconv.Itoa(i + 1)
		keys = append(keys, s.key(name, "z:"+no), s.key(name, "y:"+no), s.key(name, "r:"+no))
	}
	return keys
}
