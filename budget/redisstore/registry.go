package redisstore

import (
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget"
)

// registry is the names of a ledger's operations in the order of their numbers
// (from 1), as last seen. It only grows, but for a ledger that begins anew.
type registry struct{ names []string }

// registry is what is known of a ledger's operations.
func (s *Store) registry(name string) registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.registries[name]; r != nil {
		return *r
	}
	return registry{}
}

// remember notes the operations as a script told them.
func (s *Store) remember(name string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registries[name] = &registry{names: names}
}

func splitNames(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// with is the registry with the operations of a batch, and those that are new.
func (r registry) with(items []budget.Item) (registry, []string) {
	names := slices.Clone(r.names)
	var added []string
	for _, item := range items {
		operation := item.Operation
		if !slices.Contains(names, operation) && len(names) >= budget.MaxOperations-1 {
			operation = budget.OtherOperation
		}
		if !slices.Contains(names, operation) {
			names = append(names, operation)
			added = append(added, operation)
		}
	}
	return registry{names}, added
}

// number is an operation's number; one beyond those told apart has the number
// of OtherOperation.
func (r registry) number(operation string) int {
	if i := slices.Index(r.names, operation); i >= 0 {
		return i + 1
	}
	return slices.Index(r.names, budget.OtherOperation) + 1
}

// covered are the numbers of the operations a limit covers, by comma.
func (r registry) covered(limit budget.Limit) string {
	var list []byte
	for i, name := range r.names {
		if limit.Covers(name) {
			if len(list) > 0 {
				list = append(list, ',')
			}
			list = strconv.AppendInt(list, int64(i+1), 10)
		}
	}
	return string(list)
}

// keys are all keys of a ledger with these operations.
func (s *Store) keys(name string, r registry) []string {
	keys := []string{s.key(name, "m"), s.key(name, "e"), s.key(name, "x")}
	for i := range r.names {
		no := strconv.Itoa(i + 1)
		keys = append(keys, s.key(name, "z:"+no), s.key(name, "y:"+no))
	}
	return keys
}
