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

// Outcome is what became of a request by what its response says.
type Outcome struct {
	// Units are what it cost in the end; 0 where Released.
	Units    int64
	Released bool
	// Refused is what the upstream meant by refusing it; nil: no rule fits.
	Refused *Verdict
	// Drifts are what the upstream reports and no charge explains.
	Drifts []budget.Drift
	// Unread is what could not be read of what the response says.
	Unread []Unread
}

// Apply does with a response what a [Transport] does with its own, for a request
// that was sent by other means: compares what it reports, locks what it says is
// spent, and settles the reservation of the receipt with what it cost, or releases it
// where it is documented as not counted. It reads the response's body to its end,
// which has no transfer coding any more, and the encodings that the header tells.
//
// Applied twice it does the same once: after an error it may be applied again. The
// error is the store's or the body's, ErrConflict for a reservation that was finished
// in another way, ErrExpired for one that is no longer held.
func Apply(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response) (Outcome, error) {
	return apply(ctx, b, charged, resp, false)
}

// ApplyOpen is Apply for a response to one of the requests that a reservation is for:
// it leaves that as it is, for the caller to settle.
func ApplyOpen(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response) (Outcome, error) {
	return apply(ctx, b, charged, resp, true)
}

func apply(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response, open bool) (Outcome, error) {
	spec := b.Spec()
	fail := func(err error) (Outcome, error) {
		return Outcome{}, fmt.Errorf("take in the response to %s %s id %q: %w", b.Name(), charged.Operation, charged.ID, err)
	}
	reader, err := newReader(spec.Feedback)
	if err != nil {
		return fail(err)
	}
	cost := spec.Costs[charged.Operation]
	x := actor{budget: b, operation: charged.Operation, charged: charged}
	h := x.hearing(reader, resp, cost.Actual)
	unread, err := h.hear(resp.Body)
	if err != nil {
		return fail(err)
	}
	units := h.cost.settled(statusCost(cost, resp.StatusCode, charged.Units))
	done := Outcome{}
	switch {
	case !open:
		done, err = x.finish(ctx, resp, h.told, units)
	case !isStored(resp.Header):
		done, err = x.act(ctx, resp.StatusCode, h.told)
	}
	if err != nil {
		return fail(err)
	}
	done.Unread = unread
	return done, nil
}

// ApplyRefusal is Apply for a response to a request whose reservation the store no
// longer holds: it locks what the response says is spent, and does nothing else. It
// compares no reports, since nobody knows when the request was charged. Where no
// refusal rule fits, Refused is nil and nothing was done.
func ApplyRefusal(ctx context.Context, b *budget.Budget, operation string, resp *http.Response) (Outcome, error) {
	fail := func(err error) (Outcome, error) {
		return Outcome{}, fmt.Errorf("take in the response to %s %s, which is no longer held: %w", b.Name(), operation, err)
	}
	reader, err := newReader(feedback.Rules{Refusals: b.Spec().Feedback.Refusals})
	if err != nil {
		return fail(err)
	}
	x := actor{budget: b, operation: operation}
	h := x.hearing(reader, resp, nil)
	unread, err := h.hear(resp.Body)
	if err != nil {
		return fail(err)
	}
	done := Outcome{}
	if !isStored(resp.Header) {
		if done, err = x.act(ctx, resp.StatusCode, h.told); err != nil {
			return fail(err)
		}
	}
	done.Unread = unread
	return done, nil
}

// hearing reads a whole response by the reader's rules, and for the cost at the
// places given.
func (x actor) hearing(r *reader, resp *http.Response, cost []feedback.Source) *hearing {
	return &hearing{
		reader: r, operation: x.operation, status: resp.StatusCode, header: resp.Header, cached: isStored(resp.Header),
		covers: x.covered, cost: newCostSaid(cost, resp.Header), asks: true, judges: true,
	}
}

// finish settles or releases the request, and does what its response asks for.
func (x actor) finish(ctx context.Context, resp *http.Response, t told, units int64) (done Outcome, err error) {
	higher := !t.free && units > x.charged.Units
	if higher { // first: what the upstream says is used has it
		if err := x.budget.Settle(ctx, x.charged.ID, units); err != nil {
			return Outcome{}, err
		}
	}
	if t.free {
		return x.free(ctx, resp, t)
	}
	if !isStored(resp.Header) {
		if done, err = x.act(ctx, resp.StatusCode, t); err != nil {
			return Outcome{}, err
		}
	}
	done.Units = units
	if !higher {
		err = x.budget.Settle(ctx, x.charged.ID, units)
	}
	return done, err
}

// free releases the request, with what its response asks for before and after that,
// as a Transport does.
func (x actor) free(ctx context.Context, resp *http.Response, refused told) (Outcome, error) {
	var done Outcome
	reports := refused.reports
	refused.reports = nil
	if !isStored(resp.Header) {
		var err error
		if done, err = x.act(ctx, resp.StatusCode, refused); err != nil {
			return Outcome{}, err
		}
	}
	switch err := x.budget.Release(ctx, x.charged.ID); {
	case err == nil:
		done.Released, x.released = true, true
	case errors.Is(err, budget.ErrExpired): // it counts as sent
		done.Units = x.charged.Units
	default:
		return Outcome{}, err
	}
	if !isStored(resp.Header) {
		compared, err := x.act(ctx, resp.StatusCode, told{reports: reports})
		if err != nil {
			return Outcome{}, err
		}
		done.Drifts = compared.Drifts
	}
	return done, nil
}

// act does all that a response asks for.
func (x actor) act(ctx context.Context, status int, t told) (Outcome, error) {
	var done Outcome
	for _, one := range t.reports {
		if status == http.StatusNotModified || !x.covered(one.rule.Limit) {
			continue
		}
		drift, err := x.report(ctx, one)
		if err != nil {
			return done, err
		}
		if drift.Added > 0 {
			done.Drifts = append(done.Drifts, drift)
		}
	}
	if t.refusal == nil {
		return done, nil
	}
	verdict, err := x.lock(ctx, status, t)
	done.Refused = &verdict
	return done, err
}

// hear reads the body to its end. Without a document the header alone tells.
func (h *hearing) hear(body io.Reader) ([]Unread, error) {
	codings, err := codingsOf(h.header)
	h.begin(codings)
	var unread []Unread
	if err != nil && h.needsBody() {
		unread = append(unread, Unread{Operation: h.operation, What: UnreadEncoding, Why: err.Error()})
	}
	if body == nil {
		body = http.NoBody
	}
	buffer := make([]byte, 32<<10)
	for {
		n, wrong := body.Read(buffer)
		if err == nil {
			h.write(buffer[:n])
		}
		switch {
		case errors.Is(wrong, io.EOF):
			return append(unread, h.hearEnd()...), nil
		case wrong != nil:
			h.end(broken)
			return nil, fmt.Errorf("read its body: %w", wrong)
		}
	}
}

// needsBody reports whether the body may tell something.
func (h *hearing) needsBody() bool {
	ahead, later := h.reader.looksAtBody(h.operation, h.status, h.header)
	return ahead || later || h.cost.inBody()
}

// hearEnd looks at what is left.
func (h *hearing) hearEnd() []Unread {
	found := unreads(h.end(whole))
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
