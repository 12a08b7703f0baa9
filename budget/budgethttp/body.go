package budgethttp

import (
	"io"
	"net/http"
	"slices"
	"sync"
)

// body is a response's body on its way to the caller: what the caller reads is
// looked at, and its end finishes the request.
type body struct {
	io.ReadCloser
	attempt *attempt
	seen    answer
	held    held
	waits   bool // the charge is finished with the body
	later   bool // rules look at the body

	mu   sync.Mutex // guards all below
	scan *scanner   // nil: the body is not looked at
	done bool
	cost int64 // the last that was told
	told told  // by documents so far
}

// body wraps a response's body.
func (a *attempt) body(resp *http.Response, seen answer, held held, cost int64, waits, later bool) *body {
	b := &body{ReadCloser: resp.Body, attempt: a, seen: seen, held: held, waits: waits, later: later, cost: cost}
	if waits || later {
		b.scan = newScanner(resp.Header.Get("Content-Type"), b.document)
	}
	return b
}

// Read passes on what comes. With the body's end the request is finished.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.scan != nil {
		b.mu.Lock()
		if !b.done {
			b.scan.write(p[:n])
		}
		b.mu.Unlock()
	}
	if err != nil {
		b.finish()
	}
	return n, err
}

// Close closes the body and finishes the request.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish()
	return err
}

// finish settles what the body was waited for, once, and frees the request's
// context. A document may be complete though the body's end was not read.
func (b *body) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	b.done = true
	if b.scan != nil {
		b.scan.end()
	}
	a := b.attempt
	b.told.reports = append(b.held.release(), b.told.reports...)
	switch {
	case b.waits && b.told.free:
		a.free(b.seen, b.told)
	case b.waits:
		a.conclude(b.cost, b.seen, b.told)
	case b.later:
		a.act(b.seen, b.told, false)
	}
	a.cancel(nil)
}

// document looks at one document of the body: the body itself, an event or a line.
// b.mu is held.
func (b *body) document(text []byte) {
	a := b.attempt
	if b.waits {
		if cost, ok := a.documentCost(b.seen.header, text); ok {
			b.cost = cost
		}
	}
	if !b.later {
		return
	}
	told := a.reader.judge(a.operation, b.seen.status, b.seen.header, text)
	b.told.free = b.told.free || told.free
	// Of several documents' refusals the first in costs.toml holds.
	if t, r := told.refusal, a.reader; t != nil && b.seen.done.refusal == nil && (b.told.refusal == nil || r.place(t) < r.place(b.told.refusal)) {
		b.told.refusal, b.told.reset = t, told.reset
	}
	for _, one := range told.reports {
		same := func(other reported) bool { return other.rule == one.rule }
		if slices.ContainsFunc(b.seen.done.reports, same) {
			continue // the header told it
		}
		b.told.reports = append(slices.DeleteFunc(b.told.reports, same), one)
	}
}
