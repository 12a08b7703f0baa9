package budgethttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/quotactl/quotactl/budget"
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
}

// Apply does with a response what a [Transport] does with its own, for a request
// that was sent by other means: compares what it reports, locks what it says is
// spent, and settles the reservation of the receipt with what it cost, or releases it
// where it is documented as not counted. It reads the response's body to its end,
// which must be as it was meant: without a transfer coding.
//
// Applied twice it does the same once: after an error it may be applied again. The
// error is the store's or the body's, ErrConflict for a reservation that was finished
// in another way, ErrExpired for one that is no longer held.
func Apply(ctx context.Context, b *budget.Budget, charged budget.Receipt, resp *http.Response) (Outcome, error) {
	spec := b.Spec()
	fail := func(err error) (Outcome, error) {
		return Outcome{}, fmt.Errorf("take in the response to %s %s id %q: %w", b.Name(), charged.Operation, charged.ID, err)
	}
	reader, err := newReader(spec.Feedback)
	if err != nil {
		return fail(err)
	}
	h := &hearing{
		reader: reader, operation: charged.Operation, status: resp.StatusCode, header: resp.Header,
		cost: spec.Costs[charged.Operation].Actual,
	}
	if err := h.hear(resp.Body); err != nil {
		return fail(err)
	}
	var done Outcome
	units := h.units(statusCost(spec.Costs[charged.Operation], resp.StatusCode, charged.Units))
	higher := !h.told.free && units > charged.Units
	if higher { // first: what the upstream says is used has it
		if err := b.Settle(ctx, charged.ID, units); err != nil {
			return fail(err)
		}
	}
	x := actor{budget: b, operation: charged.Operation, charged: charged}
	if h.told.free {
		done, err := x.free(ctx, resp, h.told)
		if err != nil {
			return fail(err)
		}
		return done, nil
	}
	if !isStored(resp.Header) {
		if done, err = x.act(ctx, resp.StatusCode, h.told); err != nil {
			return fail(err)
		}
	}
	done.Units = units
	if !higher {
		if err := b.Settle(ctx, charged.ID, units); err != nil {
			return fail(err)
		}
	}
	return done, nil
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

// hearing hears a response out, document by document.
type hearing struct {
	reader    *reader
	operation string
	status    int
	header    http.Header

	heard bool // a document
	told  told
	cost  []budget.Source // where it may say what it cost, in order
	said  []*int64        // what it says there; of several documents the last
}

// hear reads the body to its end. Without a document the header alone tells.
func (h *hearing) hear(body io.Reader) error {
	h.said = make([]*int64, len(h.cost))
	scan := newScanner(h.header.Get("Content-Type"), h.document)
	if body == nil {
		body = http.NoBody
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if isPlain(h.header) {
			scan.write(buffer[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			scan.end()
			if !h.heard {
				h.document(nil)
			}
			return nil
		case err != nil:
			return fmt.Errorf("read its body: %w", err)
		}
	}
}

// document takes in the header with one document of the body, or with none. Of the
// refusals that several documents tell, the first in costs.toml holds.
func (h *hearing) document(text []byte) {
	h.heard = true
	for i := range h.cost {
		if n, ok := readCost(&h.cost[i], h.header, text); ok {
			h.said[i] = &n
		}
	}
	t := h.reader.judge(h.operation, h.status, h.header, text)
	h.told.free = h.told.free || t.free
	if t.refusal != nil && (h.told.refusal == nil || h.reader.place(t.refusal) < h.reader.place(h.told.refusal)) {
		h.told.refusal, h.told.reset = t.refusal, t.reset
	}
	for _, one := range t.reports {
		same := func(other reported) bool { return other.rule == one.rule }
		h.told.reports = append(slices.DeleteFunc(h.told.reports, same), one)
	}
}

// units are what the request cost, by the first place that says it, or otherwise.
func (h *hearing) units(otherwise int64) int64 {
	for _, n := range h.said {
		if n != nil {
			return *n
		}
	}
	return otherwise
}
