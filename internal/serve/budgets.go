package serve

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/quotactl/quotactl/budget"
)

// budgetCache holds an opened budget for each name, so that all requests for one share
// it. Those of the configuration stay; of those that a credential "*" admits, the
// ones used last are kept.
type budgetCache struct {
	open func(name string) (*budget.Budget, error)
	kept map[string]*opened // never changed

	mu   sync.Mutex                      // guards all below
	used map[string]*opened              // by requests under way, beside those kept
	idle *simplelru.LRU[string, *opened] // that no request uses
}

// opened is a budget and what is made of it once.
type opened struct {
	*budget.Budget
	spec     budget.Spec
	policies policies

	uses int // requests under way; guarded by budgetCache.mu
}

func newOpened(b *budget.Budget) *opened {
	o := &opened{Budget: b, spec: b.Spec()}
	o.policies.spec = &o.spec
	return o
}

func newBudgetCache(o Options) *budgetCache {
	idle, _ := simplelru.NewLRU[string, *opened](max(1, o.MaxOpen), nil) // fails below 1
	s := &budgetCache{open: o.Open, kept: map[string]*opened{}, used: map[string]*opened{}, idle: idle}
	for _, b := range o.Budgets {
		s.kept[b.Name()] = newOpened(b)
	}
	return s
}

// take is the budget of a name, to be given back. The error is that of Open.
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

// giveBack ends a use; what is used least goes when there are too many. Those in
// use are as many as the requests under way at most.
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
