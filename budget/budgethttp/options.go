package budgethttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Refused says what a Transport does when the budget refuses a request.
type Refused int

// The ways to handle a refusal.
const (
	// Fail returns the [*budget.RefusedError] from RoundTrip.
	Fail Refused = iota
	// Answer429 is for SDKs that understand only a 429 response. If the call does not
	// fit now, or a lock is in force, the transport itself makes a response with status
	// 429, Retry-After in whole seconds, and [RefusedHeader]. Its body is a problem
	// document (application/problem+json) with the extra members retry_after, message,
	// and error, which holds a message. Other refusals remain errors.
	Answer429
	// Wait makes the request wait until its units fit, first come first served within
	// the process; see [budget.Budget.WaitReserve].
	Wait
)

// Unmatched is the operation of requests that match no pattern. If it has no price in
// costs.toml, unknown_operation applies.
const Unmatched = "unmatched"

// DefaultLease is the lease when Options.Lease is 0.
const DefaultLease = 10 * time.Minute

// grace is how long a sent request may still be on its way to the upstream after it was
// cancelled. The store's lease ends that much later than Options.Lease.
const grace = time.Second

// Options configure a Transport. The zero value is usable.
type Options struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Operation, if set, is the operation of every request; the patterns are not used.
	Operation string
	// Labels are kept with every charge. Those left out are those of the daemon's run in
	// which the program was started, if any.
	Labels budget.Labels
	// Fence is the number of the daemon's pass that makes the requests, as in
	// [budget.Call]; it needs Labels.Job. 0 means that of the run, if Labels.Job is its job
	// or left out; else no pass.
	Fence int64
	// Floor, UseHeadroom and OnStoreError are as in [budget.Call].
	Floor        int64
	UseHeadroom  bool
	OnStoreError budget.Policy
	// Foreign: the request carries another key than the budget's, or none. What its response
	// reports and refuses is about that key, so nothing is compared and nothing locked.
	Foreign bool
	// Refused says what happens when the budget refuses a request.
	Refused Refused
	// MaxWait bounds how long Wait waits for units, and not how long the store takes to decide.
	// A call that would wait longer fails at once. 0: as [budget.Call] says.
	MaxWait time.Duration
	// Lease is the time within which the response's header must arrive: more than 0, at
	// most [budget.MaxLease] less a second. 0 means DefaultLease. The context's deadline
	// may end the request sooner.
	Lease time.Duration
	// Log receives problems that do not fail a request; nil means that nothing is logged.
	Log *slog.Logger
	// Observer receives events of the Transport; nil means no observer.
	Observer Observer
}

// Observer receives the events of a Transport. The Transport calls its methods
// synchronously; after a body's Close it calls them in the background. Concurrent
// requests call them concurrently.
type Observer interface {
	// Charged is called after each charge, before the request is sent.
	Charged(budget.Receipt)
	// Answered is called when the header of a response has come: so long after the request was
	// sent. It is not called for a request without a response.
	Answered(r budget.Receipt, took time.Duration)
	// Settled is called once for each charge, with its final units: 0 if it was released.
	Settled(r budget.Receipt, units int64)
	// Refused is called when the upstream has refused a request.
	Refused(Verdict)
	// Drifted is called when the upstream reports spend that no charge explains.
	Drifted(budget.Drift)
	// Unread is called once for each value of a response that could not be read. The log
	// reports the same value at most once a minute.
	Unread(Unread)
}

// NoObserver does nothing. An Observer that leaves calls out embeds it.
type NoObserver struct{}

// Charged implements [Observer].
func (NoObserver) Charged(budget.Receipt) {}

// Answered implements [Observer].
func (NoObserver) Answered(budget.Receipt, time.Duration) {}

// Settled implements [Observer].
func (NoObserver) Settled(budget.Receipt, int64) {}

// Refused implements [Observer].
func (NoObserver) Refused(Verdict) {}

// Drifted implements [Observer].
func (NoObserver) Drifted(budget.Drift) {}

// Unread implements [Observer].
func (NoObserver) Unread(Unread) {}

// complete sets the defaults and validates the options.
func (o *Options) complete(b *budget.Budget) error {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = NoObserver{}
	}
	spec := b.Spec()
	if _, priced := spec.Costs[o.Operation]; o.Operation != "" && !priced && !spec.Unknown.Allowed {
		return fmt.Errorf("%w %q: give it a cost in costs.toml, or set unknown_operation", budget.ErrUnknownOperation, o.Operation)
	}
	switch {
	case o.Lease < 0 || o.Lease > budget.MaxLease-grace:
		return fmt.Errorf("a lease of %s: use more than 0, at most %s", o.Lease, budget.MaxLease-grace)
	case o.MaxWait < 0:
		return fmt.Errorf("a longest wait of %s: use 0 or more", o.MaxWait)
	case o.MaxWait > 0 && o.Refused != Wait:
		return errors.New("a longest wait without waiting: set Refused to Wait")
	case o.Refused < Fail || o.Refused > Wait:
		return fmt.Errorf("Refused is %d: use Fail, Answer429 or Wait", o.Refused)
	}
	return o.call(Unmatched, "").Validate(0)
}

// call is the call of a request.
func (o *Options) call(operation, id string) budget.Call {
	return budget.Call{
		Operation: operation, ID: id, Labels: o.Labels, Fence: o.Fence, Floor: o.Floor,
		UseHeadroom: o.UseHeadroom, OnStoreError: o.OnStoreError,
	}
}

// optionsKey is the key of a request's own options in its context.
type optionsKey struct{}

// With returns a context in which a request is charged by these options instead of the
// Transport's, which [Transport.Options] returns; Base, Lease, Log and Observer remain the
// Transport's. It is for one Transport that serves requests of several jobs or operations.
// The options are not validated: the charge of an invalid one fails.
func With(ctx context.Context, o Options) context.Context {
	return context.WithValue(ctx, optionsKey{}, &o)
}

// Options returns the options of requests whose context has none of their own.
func (t *Transport) Options() Options { return t.options }

// optionsOf returns the options of a request.
func (t *Transport) optionsOf(req *http.Request) Options {
	own, ok := req.Context().Value(optionsKey{}).(*Options)
	if !ok {
		return t.options
	}
	o := *own
	o.Base, o.Lease, o.Log, o.Observer = t.options.Base, t.options.Lease, t.options.Log, t.options.Observer
	return o
}
