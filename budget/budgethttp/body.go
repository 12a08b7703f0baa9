package budgethttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// body is a response's body on its way to the caller. It examines what the caller reads,
// and its end finishes the request.
type body struct {
	io.ReadCloser
	attempt *attempt
	seen    answer
	held    held
	waits   bool  // the charge is finished with the body
	later   bool  // rules look at the body
	cost    int64 // the estimate, if neither header nor body states the cost

	mu       sync.Mutex // guards all below
	heard    *hearing
	recorded <-chan struct{} // closed when the store has recorded it; nil: the body has not ended
}

// body wraps a response's body.
func (a *attempt) body(resp *http.Response, seen answer, heard *hearing, held held, cost int64, waits, later bool) *body {
	heard.begin(seen.codings)
	return &body{ReadCloser: resp.Body, attempt: a, seen: seen, heard: heard, held: held, waits: waits, later: later, cost: cost}
}

// Read passes the body on. At its end it finishes the request and waits for the store, so
// that what the response says applies to the next request.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && (b.waits || b.later) {
		b.mu.Lock()
		if b.recorded == nil {
			b.heard.write(p[:n])
		}
		b.mu.Unlock()
	}
	switch {
	case errors.Is(err, io.EOF):
		b.await(b.finish(whole))
	case err != nil && b.attempt.request.Context().Err() != nil: // the caller has ended it
		b.finish(dropped)
	case err != nil:
		b.await(b.finish(broken))
	}
	return n, err
}

// await waits until the store has recorded what the body said, at most the store's
// timeout, because many other bodies may be recorded first.
func (b *body) await(recorded <-chan struct{}) {
	timer := time.NewTimer(b.attempt.spec.Timeout)
	defer timer.Stop()
	select {
	case <-recorded:
	case <-timer.C:
	}
}

// Close closes the body and finishes the request. It does not wait for the store.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish(dropped)
	return err
}

// finish starts, once, to settle what waited for the body, and frees the request's
// context. The returned channel is closed when the store has recorded it. A document may
// be complete even if the body's end was not read.
func (b *body) finish(how howEnded) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recorded == nil {
		b.recorded = b.record(how)
		b.attempt.cancel(nil)
	}
	return b.recorded
}

// record starts to record in the store how the request ended. b.mu is held.
func (b *body) record(how howEnded) <-chan struct{} {
	a, heard := b.attempt, b.heard
	if b.waits || b.later {
		a.unread(heard.end(how)...)
	}
	facts := heard.facts
	facts.reports = append(b.held.release(), facts.reports...)
	if !b.waits && (!b.later || facts.refusal == nil && len(facts.reports) == 0) {
		return atOnce()
	}
	cost := heard.cost.settled(b.cost)
	if b.waits && facts.silent() && a.settleSoon(cost) {
		return atOnce()
	}
	recorded, kept := a.budget.Later(func(ctx context.Context) {
		a.goOnUntil(ctx)
		if b.waits {
			_ = a.actor(b.seen).finish(cost, facts) // an attempt logs its errors
		} else {
			_ = a.actor(b.seen).act(facts, false)
		}
	})
	if !kept {
		a.logger(a.newest().ID).Warn("too many responses wait for the store: a request costs what was charged, and what its response says is not taken in", "units", cost)
		a.leave()
		return atOnce()
	}
	if facts.refusal != nil {
		await := func() { b.await(recorded) }
		a.verdict.await.Store(&await)
	}
	return recorded
}

// atOnce is a closed channel.
func atOnce() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
