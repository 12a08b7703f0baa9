package budgethttp

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotactl/quotactl/budget"
)

// Transport meters the requests of any client. It is safe for concurrent use. No
// goroutine of its own outlives a request, except to record the cost of a closed body:
// [budget.Budget.Flush] and Close wait for that. Use New.
type Transport struct {
	budget   *budget.Budget
	spec     budget.Spec
	options  Options
	routes   *routes
	reader   *reader
	sessions *lru.Cache[session, struct{}] // that are charged, the last mostSessions used
	sayings  sayings
	pace     pace
	// freeByBody: a body may tell that its request was not counted.
	freeByBody bool
	// traces: the base has reported a connection, so that a request of which it
	// reports none was answered without one.
	traces atomic.Bool
}

// New makes a Transport that charges a budget, as the budget's costs and feedback say.
// The error says what is wrong with them or with the options.
func New(b *budget.Budget, o Options) (*Transport, error) {
	fail := func(err error) (*Transport, error) {
		return nil, fmt.Errorf("meter requests for %s: %w", b.Name(), err)
	}
	if err := o.complete(b); err != nil {
		return fail(err)
	}
	t := &Transport{budget: b, spec: b.Spec(), options: o}
	var err error
	if t.sessions, err = lru.New[session, struct{}](mostSessions); err != nil {
		return fail(err)
	}
	if t.routes, err = newRoutes(t.spec.Costs); err != nil {
		return fail(err)
	}
	if t.reader, err = newReader(t.spec.Feedback); err != nil {
		return fail(err)
	}
	for _, rule := range t.spec.Feedback.Refusals {
		t.freeByBody = t.freeByBody || rule.Free && len(rule.JSON)+len(rule.Text) > 0
	}
	return t, nil
}

// RoundTrip charges the request and sends it. The request is not changed. When the
// budget says no, Options.Refused tells what comes; the error is then a
// [*budget.RefusedError], and the request's body is closed. Where many are refused,
// further refusals are held back, for a second at most and not past the request's
// deadline, so that a client that asks again and again burns no core.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	for waited := time.Duration(0); ; {
		asked := time.Now()
		a, err := t.begin(req, waited)
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // it was not read
			}
			t.holdBack(req, err)
			return t.refuse(req, err)
		}
		waited += time.Since(asked)
		resp, err := a.send()
		if err == nil {
			a.answered(resp)
			return resp, nil
		}
		err = a.failed(err)
		if !a.beginsAgain(waited) {
			return nil, err
		}
		if req, err = replay(req); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections calls the base's, if it has one.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// operation is the request's.
func (t *Transport) operation(req *http.Request) string {
	if t.options.Operation != "" {
		return t.options.Operation
	}
	if operation, ok := t.routes.operation(req); ok {
		return operation
	}
	return Unmatched
}
