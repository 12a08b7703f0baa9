package budgethttp

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// trace is what the base reports about a request's connections: whether it may have
// left, and how often.
type trace struct {
	// again is called synchronously when the base is about to resend, on another
	// connection, a request that may have left before.
	again func()

	mu    sync.Mutex // guards all below
	asked bool       // for a connection
	got   bool       // a connection
	host  string     // of the last connection that was asked for
	sent  string     // the host to which part of the request's header was written; empty: no host
}

// with adds the hooks to a context; hooks already there are called too.
func (t *trace) with(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(host string) { // the base may hold a lock
			t.mu.Lock()
			defer t.mu.Unlock()
			t.asked, t.host = true, host
		},
		GotConn: func(httptrace.GotConnInfo) {
			t.mu.Lock()
			// A base that first fetches a token from another host does not resend.
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

// neverLeft reports whether nothing of the request provably left: the base asked for a
// connection and got none. What is on a connection may leave until the base returns,
// and on a shared one even later.
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
