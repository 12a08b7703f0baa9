package budgethttp

import (
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotactl/quotactl/budget"
)

// Transport meters the requests of a client. Make one with [New]. It is safe for
// concurrent use. Its goroutines end with their request, except one that records the
// cost of a closed body or of one that costs what was charged: [budget.Budget.Flush] and
// Close wait for that one.
type Transport struct {
	budget   *budget.Budget
	spec     budget.Spec
	options  Options
	routes   *Routes
	reader   *reader
	sessions *lru.Cache[session, struct{}] // the mostSessions charged sessions used last
	sayings  sayings
	pace     pace
	outer    outer
	// freeByBody is true if a rule can recognise by the body that the upstream did not
	// count the request.
	freeByBody bool
	// traces is true once the base has reported a connection. From then on, a request
	// without a reported connection was answered without one.
	traces atomic.Bool
}

// New makes a Transport that charges the budget by its costs and feedback rules. In a run of
// the daemon, the run completes what the options leave out, as [budget.WithRun] says. New
// fails if rules or options are invalid.
func New(b *budget.Budget, o Options) (*Transport, error) {
	fail := func(err error) (*Transport, error) {
		return nil, fmt.Errorf("meter requests for %s: %w", b.Name(), err)
	}
	if err := o.complete(b); err != nil {
		return fail(err)
	}
	if o.Fence == 0 && !b.HasRun() {
		run, err := budget.RunFrom(os.LookupEnv)
		if err != nil {
			return fail(err)
		}
		b = b.InRun(run)
	}
	t := &Transport{budget: b, spec: b.Spec(), options: o, outer: outerMeter(os.LookupEnv)}
	var err error
	if t.sessions, err = lru.New[session, struct{}](mostSessions); err != nil {
		return fail(err)
	}
	if t.routes, err = newRoutes(t.spec.Costs); err != nil {
		return fail(err)
	}
	if t.reader, err = newReader(t.spec.Feedback, t.spec.Limits); err != nil {
		return fail(err)
	}
	for _, rule := range t.spec.Feedback.Refusals {
		t.freeByBody = t.freeByBody || rule.Free && len(rule.JSON)+len(rule.Text) > 0
	}
	return t, nil
}

// RoundTrip charges the request and sends it. It does not change the request. If the
// budget refuses, RoundTrip closes the request's body and does what Options.Refused says;
// an error is then a [*budget.RefusedError]. If many requests are refused, RoundTrip
// delays further refusals, by at most a second and not past the request's deadline, so
// that a client that retries in a loop does not burn a core.
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

// CloseIdleConnections calls the base's CloseIdleConnections, if it has one.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// Operation returns the operation by which a request is charged: that of its options, else that
// of the most specific pattern, else [Unmatched].
func (t *Transport) Operation(req *http.Request) string {
	if o := t.optionsOf(req); o.Operation != "" {
		return o.Operation
	}
	if operation, ok := t.routes.Operation(req); ok {
		return operation
	}
	return Unmatched
}
