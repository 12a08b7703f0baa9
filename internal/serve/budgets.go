package serve

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/quotactl/quotactl/budget"
)

// budgetCache holds one opened budget for each name, shared by all its requests. It keeps
// all budgets of the configuration, and the most recently used of those that a credential
// "*" admits.
type budgetCache struct {
	open func(name string) (*budget.Budget, error)
	kept map[string]*opened // never changed

	mu   sync.Mutex                      // guards all below
	used map[string]*opened              // not in kept, in use by requests under way
	idle *simplelru.LRU[string, *opened] // not in kept, in use by no request
}

// opened is a budget with values that are derived from it once.
type opened struct {
	*budget.Budget
	spec     budget.Spec
	policies policies

	uses int // requests under way; guarded by budgetCache.mu
}

func newOpened(b *budget.Budget) *opened {
	o := &opened{Budget: b, spec: b.Spec()}
	o.policies.spec, o.policies.limits = &o.spec, b.Limits
	return o
}

func newBudgetCache(o Options) *budgetCache {
	idle, _ := simplelru.NewLRU[string, *opened](max(1, o.MaxOpen), nil) // it fails only below 1
	s := &budgetCache{open: o.Open, kept: map[string]*opened{}, used: map[string]*opened{}, idle: idle}
	for _, b := range o.Budgets {
		s.kept[b.Name()] = newOpened(b)
	}
	return s
}

// take returns the budget of a name; the caller gives it back. The error is that of Open.
func (s *budgetCache) take(name string) (*opened, error) {
	if o := s.kept[name]; o != nil {
		return o, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.used[name]
	if o == nil {
		o, _ = s.idle.Get(name)
	}
	if o == nil {
		b, err := s.open(name)
		if err != nil {
			return nil, err
		}
		o = newOpened(b)
	}
	s.idle.Remove(name)
	s.used[name] = o
	o.uses++
	return o, nil
}

// giveBack ends one use. If too many budgets are idle, the least recently used is
// dropped. Those in use are never more than the requests under way.
func (s *budgetCache) giveBack(o *opened) {
	name := o.spec.Name
	if s.kept[name] == o {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.uses--; o.uses == 0 {
		delete(s.used, name)
		s.idle.Add(name, o)
	}
}
