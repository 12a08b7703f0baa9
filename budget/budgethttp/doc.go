// Package budgethttp meters HTTP clients: [Transport] is an [http.RoundTripper] that
// charges every request to a budget before it is sent, and applies what the responses
// say about the upstream's quota.
//
//	transport, err := budgethttp.New(b, budgethttp.Options{})
//	client := &http.Client{Transport: transport}
//
// A request costs the price of its operation, which the patterns of costs.toml
// determine (match = "GET api.example.com/search"). Each attempt is charged: retries of
// an SDK, redirects, and what net/http repeats by itself on a new connection because a
// kept one had died. An operation with once is charged once per upload or session.
//
// A request that the budget refuses does not touch the network: its error is the
// [*budget.RefusedError], which callers find with [errors.Is] and [errors.As] also
// within the *url.Error of a client. [Options.Refused] chooses a response of status
// 429 instead, or to wait.
//
// # From the charge to the response
//
// A request is a reservation, so that it counts for as long as it may still reach the
// upstream: from before it is sent until the response's header has arrived. The lease
// bounds that ([Options.Lease]): a request without a response by then is cancelled.
// Afterwards it costs what it was charged, or what the response says (actual), read as
// the caller reads the body; a 304 costs the operation's not_modified. Closing a body
// before its end does not wait for the store: its cost is recorded in the background,
// and [budget.Budget.Flush] and [budget.Budget.Close] wait for that.
//
// A request is released only if it provably never left: there was no connection, or the
// context had ended before. This needs a base that reports its connections to
// [net/http/httptrace], as net/http's does. Everything else stays charged. A request
// that was given up without a response (a timeout, a cancelled context) may still
// arrive: its reservation stays open until its lease ends.
//
// # What responses say
//
// The rules of costs.toml recognise, by a response's status, header and body, that the
// upstream refuses the credential, or what is left of its quota; see [budget.Feedback].
// A lock is kept in the store, so that all processes stop. [VerdictOf] returns what a
// response meant. Bodies in gzip, deflate, br and zstd are read too, and reach the
// caller unchanged. What cannot be read goes to the Observer and the log as [Unread].
package budgethttp
