package budgethttp

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// body is a response's body on its way to the caller: what the caller reads is
// looked at, and its end finishes the request.
type body struct {
	io.ReadCloser
	attempt *attempt
	seen    answer
	held    held
	waits   bool  // the charge is finished with the body
	later   bool  // rules look at the body
	cost    int64 // the estimate, where neither header nor body tells

	mu    sync.Mutex // guards all below
	heard *hearing
	done  bool
}

// body wraps a response's body.
func (a *attempt) body(resp *http.Response, seen answer, heard *hearing, held held, cost int64, waits, later bool) *body {
	heard.begin(seen.codings)
	return &body{ReadCloser: resp.Body, attempt: a, seen: seen, heard: heard, held: held, waits: waits, later: later, cost: cost}
}

// Read passes on what comes. With the body's end the request is finished.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && (b.waits || b.later) {
		b.mu.Lock()
		if !b.done {
			b.heard.write(p[:n])
		}
		b.mu.Unlock()
	}
	switch {
	case errors.Is(err, io.EOF):
		b.finish(whole)
	case err != nil && b.attempt.request.Context().Err() != nil: // the caller has ended it
		b.finish(dropped)
	case err != nil:
		b.finish(broken)
	}
	return n, err
}

// Close closes the body and finishes the request.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish(dropped)
	return err
}

// finish settles what the body was waited for, once, and frees the request's
// context. A document may be complete though the body's end was not read.
func (b *body) finish(how howEnded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	b.done = true
	a, heard := b.attempt, b.heard
	if b.waits || b.later {
		a.unread(heard.end(how)...)
	}
	told := heard.told
	told.reports = append(b.held.release(), told.reports...)
	cost := heard.cost.settled(b.cost)
	switch {
	case b.waits && told.free:
		a.free(b.seen, told)
	case b.waits:
		a.conclude(cost, b.seen, told)
	case b.later:
		a.act(b.seen, told, false)
	}
	a.cancel(nil)
}
