package budgethttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Refused is what a caller gets when the budget refuses.
type Refused int

// What a caller may get.
const (
	// Fail: RoundTrip returns the [*budget.RefusedError].
	Fail Refused = iota
	// Answer429: if the call does not fit now, or is locked out, the transport makes a
	// response of status 429 itself, with Retry-After in whole seconds and
	// [RefusedHeader], for SDKs that understand only that. Its body is a problem with
	// the additional members retry_after, message, and error with a message. Other
	// refusals stay errors.
	Answer429
	// Wait: the request waits until its units fit, first come first served within
	// the process; see [budget.Budget.WaitReserve].
	Wait
)

// Unmatched is the operation of requests that no pattern matches. If it has no price in
// costs.toml, unknown_operation applies.
const Unmatched = "unmatched"

// DefaultLease is the lease where Options name none.
const DefaultLease = 10 * time.Minute

// grace is how long what was sent may still be on its way to the upstream after
// the request was cancelled: a lease ends that much later.
const grace = time.Second

// Options say how a Transport works. The zero value is usable.
type Options struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
	// Operation, when set, is that of every request: the patterns are then not used.
	Operation string
	// Labels are kept with every charge.
	Labels budget.Labels
	// Fence is the number of the daemon's pass that the requests are made for, as in
	// [budget.Call]; with it goes Labels.Job. 0: none.
	Fence int64
	// Floor, UseHeadroom and OnStoreError are as in [budget.Call].
	Floor        int64
	UseHeadroom  bool
	OnStoreError budget.Policy
	// Refused is what a caller gets when the budget refuses.
	Refused Refused
	// MaxWait is the longest wait of Wait, the store's time included; a call that would
	// wait longer fails at once. 0: only the context's deadline.
	MaxWait time.Duration
	// Lease is the time within which the response's header must arrive: more than 0, at
	// most [budget.MaxLease] less a second; 0: DefaultLease. A context's deadline may
	// be sooner.
	Lease time.Duration
	// Log receives problems that fail no request; nil: nothing is logged.
	Log *slog.Logger
	// Observer hears what is charged and learnt; nil: none.
	Observer Observer
}

// Observer is told what a Transport does. Its methods are called synchronously, after a
// body's Close in the background, and concurrently by concurrent requests.
type Observer interface {
	// Charged is called after each charge, before the request is sent.
	Charged(budget.Receipt)
	// Settled is called once for each of them, with its final units: 0 when it was
	// released.
	Settled(r budget.Receipt, units int64)
	// Refused is called when the upstream has refused a request.
	Refused(Verdict)
	// Drifted is called when the upstream reports spend that no charge explains.
	Drifted(budget.Drift)
	// Unread is called when something that a response says could not be read, once for
	// each such value of a response. The log has it at most once a minute.
	Unread(Unread)
}

// nobody is the Observer of Options that name none.
type nobody struct{}

func (nobody) Charged(budget.Receipt) {}

func (nobody) Settled(budget.Receipt, int64) {}

func (nobody) Refused(Verdict) {}

func (nobody) Drifted(budget.Drift) {}

func (nobody) Unread(Unread) {}

// complete fills in what is not set, and finds what is wrong.
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
		o.Observer = nobody{}
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
