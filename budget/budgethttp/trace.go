package budgethttp

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// trace is what the base reports about a request's connections: whether any of the
// request may have left, and how often.
type trace struct {
	// again is called, synchronously, when the base is about to resend on another
	// connection a request that may have left on an earlier one.
	again func()

	mu    sync.Mutex // guards all below
	asked bool       // for a connection
	got   bool       // a connection
	host  string     // of the last connection asked for
	sent  string     // the host to which some of the request's header was written; empty: none
}

// with adds the hooks to a context; hooks that it has already are called too.
func (t *trace) with(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(host string) { // the base may hold a lock
			t.mu.Lock()
			defer t.mu.Unlock()
			t.asked, t.host = true, host
		},
		GotConn: func(httptrace.GotConnInfo) {
			t.mu.Lock()
			// A base that first asks another host for a token does not resend anything.
			again := t.sent != "" && t.sent == t.host
			t.got, t.sent = true, ""
			t.mu.Unlock()
			if again {
				t.again()
			}
		},
		// Called for the first field of a header: without it no complete header was
		// written.
		WroteHeaderField: func(string, []string) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.sent = t.host
		},
	})
}

// neverLeft reports whether it is proven that nothing of the request left: the base asked
// for a connection and got none. Anything written to a connection may leave until the
// base has returned; on a shared connection, even later.
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
