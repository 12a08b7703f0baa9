package gateway

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
)

// meters are the transports of a gateway's budgets, each made with its budget's first call.
type meters struct {
	gateway *Gateway

	mu     sync.Mutex // guards all below
	byName map[string]*meter
}

type meter struct {
	*budgethttp.Transport
	budget *budget.Budget
}

// defaultWait is how long a call waits for its units if nobody says: some clients give up
// after five seconds.
const defaultWait = 4 * time.Second

// of returns the meter of a budget.
func (m *meters) of(name string) (*meter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byName[name]; one != nil {
		return one, nil
	}
	b, err := m.gateway.options.Open(name)
	if err != nil {
		return nil, err
	}
	options := m.gateway.options.Call
	options.Base, options.Observer = sender{m.gateway}, &observer{tally: m.gateway.tally, name: name}
	spec := b.Spec()
	wait, said := spec.MaxWait(options.Labels)
	if !said {
		wait = defaultWait
	}
	if always := m.gateway.options.Wait; always != nil {
		wait = *always
	}
	if options.Refused = budgethttp.Fail; wait > 0 {
		options.Refused, options.MaxWait = budgethttp.Wait, wait
	}
	transport, err := budgethttp.New(b, options)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	m.byName[name] = &meter{transport, b}
	return m.byName[name], nil
}

// soonest is when a refused call may fit if the open calls end now. What is kept or held for others
// may be given back, too, and a loss may be over, but nobody knows when.
func (m *meters) soonest(name string, refused *budget.RefusedError) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byName[name]
	if one == nil || refused.Held > 0 || len(refused.Kept) > 0 || errors.Is(refused, budget.ErrRecovering) {
		return refused.RetryAfter
	}
	return one.budget.Soonest(refused)
}

// session returns the budget of the upload or session to which a request belongs; empty: none
// is known.
func (m *meters) session(w owned, req *http.Request) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, one := range m.byName {
		if w.has(name) && one.Knows(req, w.operation) {
			return name
		}
	}
	return ""
}

// close records what is left to record, and closes the budgets.
func (m *meters) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, one := range m.byName {
		errs = append(errs, one.budget.Close())
	}
	return errors.Join(errs...)
}
