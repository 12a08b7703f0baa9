package budgethttp

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// trace is what the base reports of a request's connections: what of it may have
// left, and how often.
type trace struct {
	// again is called when the base is about to send on another connection what may
	// have left on one before, synchronously.
	again func()

	mu    sync.Mutex // guards all below
	asked bool       // for a connection
	got   bool       // a connection
	host  string     // that the last connection asked for goes to
	sent  string     // the host to which some of the request's header was written; empty: none
}

// with adds the hooks to a context; those that are there are called too.
func (t *trace) with(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(host string) { // the base may hold a lock
			t.mu.Lock()
			defer t.mu.Unlock()
			t.asked, t.host = true, host
		},
		GotConn: func(httptrace.GotConnInfo) {
			t.mu.Lock()
			// A base that first asks another host for a token sends nothing again.
			again := t.sent != "" && t.sent == t.host
			t.got, t.sent = true, ""
			t.mu.Unlock()
			if again {
				t.again()
			}
		},
		// The first of a header's fields: without it no whole header is written.
		WroteHeaderField: func(string, []string) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.sent = t.host
		},
	})
}

// neverLeft reports whether it is proven that nothing of the request left: the
// base asked for a connection and got none. What is on a connection may leave
// until the base has returned, and on a shared one after that.
func (t *trace) neverLeft() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked && !t.got
}

// silent reports whether the base has reported nothing.
func (t *trace) silent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.asked && !t.got
}
