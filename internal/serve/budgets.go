package serve

import (
	"container/list"
	"sync"

	"github.com/quotactl/quotactl/budget"
)

// shelf holds an opened budget for each name, so that all requests for one share
// it. Those of the configuration stay; of those that a credential "*" admits, the
// ones used last are kept.
type shelf struct {
	open func(name string) (*budget.Budget, error)
	most int
	kept map[string]*opened // never changed

	mu     sync.Mutex // guards all below
	others map[string]*opened
	idle   list.List // of *opened that no request uses, the one used last in front
}

// opened is a budget and what is made of it once.
type opened struct {
	*budget.Budget
	spec     budget.Spec
	policies policies

	uses int           // requests under way; guarded by shelf.mu
	at   *list.Element // among the idle; nil while it is used
}

func newOpened(b *budget.Budget) *opened {
	o := &opened{Budget: b, spec: b.Spec()}
	o.policies.spec = &o.spec
	return o
}

func newShelf(o Options) *shelf {
	s := &shelf{open: o.Open, most: o.MaxOpen, kept: map[string]*opened{}, others: map[string]*opened{}}
	for _, b := range o.Budgets {
		s.kept[b.Name()] = newOpened(b)
	}
	return s
}

// take is the budget of a name, to be given back. The error is that of Open.
func (s *shelf) take(name string) (*opened, error) {
	if o := s.kept[name]; o != nil {
		return o, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.others[name]
	if o == nil {
		b, err := s.open(name)
		if err != nil {
			return nil, err
		}
		o = newOpened(b)
		s.others[name] = o
	}
	if o.at != nil {
		s.idle.Remove(o.at)
		o.at = nil
	}
	o.uses++
	return o, nil
}

// giveBack ends a use; what is used least goes when there are too many. Those in
// use are as many as the requests under way at most.
func (s *shelf) giveBack(o *opened) {
	if s.kept[o.spec.Name] == o {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.uses--; o.uses > 0 {
		return
	}
	o.at = s.idle.PushFront(o)
	for s.idle.Len() > s.most {
		oldest := s.idle.Remove(s.idle.Back()).(*opened)
		delete(s.others, oldest.spec.Name)
	}
}
