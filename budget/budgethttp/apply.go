package budgethttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
)

// Outcome is what a response meant for its request.
type Outcome struct {
	// Units is the final cost; 0 if Released.
	Units    int64
	Released bool
	// Refused is what the upstream meant by its refusal; nil: no rule fits, or the
	// response comes from a cache.
	Refused *Verdict
	// Drifts is spending that the upstream reports and no charge explains.
	Drifts []budget.Drift
	// Unread lists values of the response that could not be read.
	Unread []Unread
}

// Apply handles a response as a [Transport] handles its own, for a request that was sent
// by other means. It compares what the response reports, locks what it says is spent, and
// settles the receipt's reservation at what the call cost, or releases it if the call is
// documented as not counted. It reads the response's body to its end. The body must have
// its transfer coding removed; its content encodings must be those that the header names,
// and its length ContentLength, if that is above 0: a shorter body is cut.
//
// Applying a response twice has the same effect as once, so apply it again after an
// error; only a lock for a span, such as Retry-After: 60, counts from the last time. The
// error is the store's or the body's; ErrConflict if the reservation was finished in
// another way; ErrExpired if the store no longer has it.
func Apply(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response) (Outcome, error) {
	return apply(ctx, b, charged, resp, false)
}

// ApplyOpen is Apply for a response to one of several requests of one reservation: it
// leaves the reservation open, for the caller to settle.
func ApplyOpen(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response) (Outcome, error) {
	return apply(ctx, b, charged, resp, true)
}

func apply(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response, open bool) (Outcome, error) {
	spec := b.Spec()
	cost := spec.Costs[charged.Operation]
	done, err := takeIn(ctx, b, charged, resp, spec.Feedback, cost.Actual, func(x actor, h *hearing) error {
		if open {
			return x.act(h.facts, false)
		}
		return x.finish(h.cost.settled(statusCost(cost, resp.StatusCode, charged.Units)), h.facts)
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("take in the response to %s %s id %q: %w", b.Name(), charged.Operation, charged.ID, err)
	}
	return done, nil
}

// ApplyRefusal is Apply for a request whose reservation the store no longer has: it
// only locks what the response says is spent. It compares no reports, because it is
// unknown when the request was charged. If no refusal rule fits, Refused is nil and
// nothing was done.
func ApplyRefusal(ctx context.Context, b *budget.Budget, operation string, resp *http.Response) (Outcome, error) {
	rules := feedback.Rules{Refusals: b.Spec().Feedback.Refusals}
	done, err := takeIn(ctx, b, budget.Receipt{Operation: operation}, resp, rules, nil, func(x actor, h *hearing) error {
		return x.act(h.facts, false)
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("take in the response to %s %s, whose charge the store no longer keeps: %w", b.Name(), operation, err)
	}
	return done, nil
}

// takeIn reads a response to its end, by the rules and for the cost at the places given,
// and then calls do.
func takeIn(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response, rules feedback.Rules, cost []feedback.Source, do func(actor, *hearing) error) (Outcome, error) {
	reader, err := newReader(rules, b.Spec().Limits)
	if err != nil {
		return Outcome{}, err
	}
	a := &applying{ctx: ctx, budget: b, charged: charged}
	x := actor{budget: b, operation: charged.Operation, charged: charged, status: resp.StatusCode, cached: isStored(resp.Header), by: a}
	h := x.hearing(reader, resp.Header, newCostSaid(cost, resp.Header))
	h.asks, h.judges = true, true
	if a.done.Unread, err = h.readBody(resp); err != nil {
		return Outcome{}, err
	}
	err = do(x, h)
	return a.done, err
}

// applying collects what Apply did.
type applying struct {
	ctx     context.Context
	budget  *budget.Budget
	charged budget.Receipt
	done    Outcome
}

// within implements actsFor.
func (a *applying) within() (context.Context, context.CancelFunc) { return a.ctx, func() {} }

// keep implements actsFor.
func (a *applying) keep(units int64, _ bool) error {
	a.done.Units = units
	return a.budget.Settle(a.ctx, a.charged.ID, units)
}

// giveBack implements actsFor.
func (a *applying) giveBack() (bool, error) {
	err := a.budget.Release(a.ctx, a.charged.ID)
	if errors.Is(err, budget.ErrExpired) { // it counts as sent
		a.done.Units = a.charged.Units
		return false, nil
	}
	a.done.Released = err == nil
	return a.done.Released, err
}

// compared implements actsFor.
func (a *applying) compared(_ *feedback.Report, drift budget.Drift, err error) error {
	if drift.Added > 0 {
		a.done.Drifts = append(a.done.Drifts, drift)
	}
	return err
}

// locked implements actsFor.
func (a *applying) locked(_ int, v Verdict, err error) error {
	if !v.Cached {
		a.done.Refused = &v
	}
	return err
}

// lineEnd is the most bytes that a body may lack and still be whole: a shell's $(curl -i …)
// removes the last line's end. No document is cut by so few that can still be read.
const lineEnd = 2

// readBody reads the body to its end, which comes too early if ContentLength says so. If it
// has no document, only the header counts: it may be the answer to HEAD.
func (h *hearing) readBody(resp *http.Response) ([]Unread, error) {
	body, came, needed, how := resp.Body, int64(0), h.needsBody(), whole
	codings, err := codingsOf(h.header)
	h.begin(codings)
	var unread []Unread
	if err != nil && needed {
		unread = append(unread, Unread{Operation: h.operation, What: UnreadEncoding, Why: err.Error()})
	}
	if body == nil {
		body = http.NoBody
	}
	buffer := make([]byte, 32<<10)
	for {
		n, wrong := body.Read(buffer)
		came += int64(n)
		if err == nil {
			h.write(buffer[:n])
		}
		switch {
		case errors.Is(wrong, io.EOF):
			if needed && came > 0 && came+lineEnd < resp.ContentLength {
				how = broken
			}
			return append(unread, h.hearEnd(how)...), nil
		case wrong != nil:
			h.end(broken)
			return nil, fmt.Errorf("read its body: %w", wrong)
		}
	}
}

// needsBody reports whether any rule or cost needs the body.
func (h *hearing) needsBody() bool {
	ahead, later := h.reader.looksAtBody(h.operation, h.status, h.header)
	return ahead || later || h.cost.inBody()
}

// hearEnd reads what is left of the body.
func (h *hearing) hearEnd(how howEnded) []Unread {
	found := unreads(h.end(how))
	if !h.heard {
		h.document(nil)
		for _, one := range slices.Concat(h.misreadCost(""), h.misreadRules("")) {
			found.add(one)
		}
	}
	for i := range found {
		found[i].Operation = h.operation
	}
	return found
}
