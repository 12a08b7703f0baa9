package budgethttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// attempt is one request on its way: its charges, and until when it may run.
type attempt struct {
	*Transport
	options   Options // of this request
	request   *http.Request
	operation string
	cost      budget.Cost
	session   session // the one that the request names
	once      bool    // the charge is the session's, under the session's id
	waited    time.Duration

	lease   time.Duration // of its reservations
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer // cancels it before the lease ends; nil: the deadline does
	ends    time.Time   // when the timer fires; zero without one
	trace   trace
	sent    bool // the base was called
	verdict verdict
	unreads unreads

	mu       sync.Mutex            // guards all below
	charges  []*budget.Reservation // the unfinished ones
	receipt  budget.Receipt        // of the last charge
	refused  error                 // the budget's answer to sending it again; nil: it was not asked or agreed
	unbooked int64                 // how often it was sent again although refused
	until    context.Context       // bounds the recording after the body was closed; nil: that has not begun
}

// leaseError ends a request whose response has not arrived within its lease. It is a
// [net.Error], because clients check for that.
type leaseError struct {
	budget, operation string
	lease             time.Duration
}

func (e *leaseError) Error() string {
	return fmt.Sprintf("send %s %s: no response within the lease of %s; the request was cancelled, since a later arrival would not be counted: give it a longer lease", e.budget, e.operation, e.lease)
}

// Timeout reports true: it is a timeout.
func (e *leaseError) Timeout() bool { return true }

// Temporary completes [net.Error].
func (e *leaseError) Temporary() bool { return true }

// begin charges a request that has already waited this long. The error is why it may not
// be sent.
func (t *Transport) begin(req *http.Request, waited time.Duration) (*attempt, error) {
	a := &attempt{Transport: t, options: t.optionsOf(req), request: req, waited: waited}
	a.operation = t.Operation(req)
	a.cost = t.spec.Costs[a.operation]
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("charge %s %s: %w; nothing was charged", t.budget.Name(), a.operation, context.Cause(ctx))
	}
	a.lease = t.options.Lease + grace
	deadline, bounded := ctx.Deadline()
	if bounded = bounded && time.Until(deadline) < t.options.Lease; bounded {
		a.lease = max(0, time.Until(deadline)) + grace
	}
	a.trace.again = a.chargeAgain
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if a.isCharged() {
		return a, nil
	}
	id := rand.Text()
	if !a.session.none() {
		id, a.once = a.session.id(), true
	}
	r, err := a.reserve(ctx, id, a.options.Refused == Wait)
	switch {
	case a.once && (errors.Is(err, budget.ErrConflict) || err == nil && r.Replayed):
		// Another request of the session was charged, here or elsewhere.
		t.remember(a.session)
		return a, nil
	case err != nil:
		a.cancel(nil)
		return nil, a.unmatched(err)
	}
	a.took(r)
	if !bounded {
		a.ends = r.Asked.Add(t.options.Lease)
		a.timer = time.AfterFunc(time.Until(a.ends), func() { a.cancel(a.leaseOver()) })
	}
	return a, nil
}

// unmatched adds the method and host of a request that matches no operation to the error.
// It leaves out the path, which may contain a secret.
func (a *attempt) unmatched(err error) error {
	if a.operation != Unmatched || !errors.Is(err, budget.ErrUnknownOperation) {
		return err
	}
	seen := shadow(a.request)
	return fmt.Errorf("no pattern in costs.toml matches this request, %s %s; add one, with this host, to the match of its operation: %w", seen.Method, seen.Host, err)
}

func (a *attempt) leaseOver() error {
	return &leaseError{a.budget.Name(), a.operation, a.options.Lease}
}

// isCharged reports whether the request belongs to a session that is known to be charged,
// and notes the session that the request names.
func (a *attempt) isCharged() bool {
	if a.cost.Once == nil {
		return false
	}
	a.session = newSession(a.budget.Name(), a.cost.Once, requestValue(a.cost.Once, a.request))
	_, known := a.sessions.Get(a.session)
	return known
}

// reserve takes the request's units. Nothing was sent yet, so it releases a charge whose
// outcome it does not learn.
func (a *attempt) reserve(ctx context.Context, id string, wait bool) (*budget.Reservation, error) {
	call := a.options.call(a.operation, id)
	call.NewID = !a.once // a session's id may be charged already
	if !wait {
		r, err := a.budget.Reserve(ctx, call, a.lease)
		return r, a.forget(ctx, call, err)
	}
	if a.options.MaxWait > 0 {
		call.MaxWait = max(1, a.options.MaxWait-a.waited)
	}
	r, err := a.budget.WaitReserve(ctx, call, a.lease)
	return r, a.forget(ctx, call, err)
}

// forget releases what may have been charged if the context ended during the decision. That may
// still be under way, so it asks for the same charge first, which mostly is decided after it.
func (a *attempt) forget(ctx context.Context, call budget.Call, err error) error {
	var refused *budget.RefusedError
	if err == nil || ctx.Err() == nil || a.once ||
		errors.Is(err, budget.ErrNotCharged) || errors.As(err, &refused) && refused.NotCharged {
		return err
	}
	within, cancel := a.within()
	defer cancel()
	call.NewID = false
	r, failed := a.budget.Reserve(within, call, a.lease)
	if failed == nil {
		failed = r.Release(within)
	} else if errors.As(failed, &refused) && refused.Source == budget.SourceStore {
		return err // it has no such charge
	}
	if failed != nil {
		a.logger(call.ID).Warn("the charge of a request that was not sent may count until its lease ends", "error", failed)
	}
	return err
}

// took notes a charge.
func (a *attempt) took(r *budget.Reservation) {
	a.mu.Lock()
	a.charges, a.receipt = append(a.charges, r), r.Receipt
	a.mu.Unlock()
	a.options.Observer.Charged(r.Receipt)
}

// chargeAgain charges the request once more when the base itself resends it on another
// connection. If the charge is refused, it cancels the request; what may leave anyway is
// settled with it.
func (a *attempt) chargeAgain() {
	a.mu.Lock()
	free := a.receipt.ID == "" || a.once
	a.mu.Unlock()
	if free {
		return
	}
	r, err := a.reserve(a.ctx, rand.Text(), false)
	if err == nil {
		a.took(r)
		return
	}
	a.mu.Lock()
	a.refused = err
	a.unbooked++
	a.mu.Unlock()
	a.cancel(err)
}

// wasRefused is the budget's refusal to send it again; nil if there is none.
func (a *attempt) wasRefused() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// send has the base send the request.
func (a *attempt) send() (*http.Response, error) {
	ctx := a.trace.with(a.ctx)
	if err := ctx.Err(); err != nil { // it ended while the request was charged
		if a.request.Body != nil {
			_ = a.request.Body.Close() // the base did not read it
		}
		return nil, context.Cause(ctx)
	}
	a.sent = true
	out := a.proven(a.request.WithContext(ctx))
	began := time.Now()
	resp, err := a.options.Base.RoundTrip(out)
	if !a.trace.silent() {
		a.traces.Store(true)
	}
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errors.New("the base returned neither a response nor an error")
	}
	// Cancelled as the header came: the body is cut.
	switch refused := a.wasRefused(); {
	case refused != nil:
		err = refused
	case a.timer != nil && !a.timer.Stop():
		err = a.leaseOver()
	}
	if err != nil {
		if resp.Body != nil {
			_ = resp.Body.Close() // the caller does not get it
		}
		return nil, err
	}
	took := time.Since(began)
	a.mu.Lock()
	a.verdict.receipt = a.receipt
	a.mu.Unlock()
	a.options.Observer.Answered(a.verdict.receipt, took)
	resp.Request = a.verdict.attach(resp.Request, out, a.request)
	return resp, nil
}

// failed finishes a request that got no response, and returns why.
func (a *attempt) failed(err error) error {
	if a.timer != nil {
		a.timer.Stop()
	}
	cause := context.Cause(a.ctx)
	refused := a.wasRefused()
	var over *leaseError
	switch {
	case !a.sent || a.trace.neverLeft() || a.neverBegun(err):
		a.release()
	case refused == nil && (cause != nil || a.givenUp(err)):
		a.leave()
	default:
		a.settle(a.units())
	}
	a.cancel(nil)
	switch {
	case refused != nil:
		return refused
	case errors.As(cause, &over):
		return over
	}
	return err
}

// givenUp reports whether an error means that the caller gave up, not that the connection
// died: what was sent may still be on its way.
func (a *attempt) givenUp(err error) bool {
	//lint:ignore SA1019 a client's Timeout closes it before the context's deadline
	cancelled := a.request.Cancel //nolint:staticcheck // as above
	select {
	case <-cancelled:
		return true
	default:
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
