// Package budgethttp meters HTTP clients: [Transport] is an [http.RoundTripper] that
// charges every request to a budget before it is sent, and applies what the responses
// say about the upstream's quota.
//
//	transport, err := budgethttp.New(b, budgethttp.Options{})
//	client := &http.Client{Transport: transport}
//
// A request costs the price of its operation. The patterns in costs.toml choose the
// operation (match = "GET api.example.com/search"). Every attempt is charged: an SDK's
// retries, redirects, and a request that net/http resends by itself because a kept-alive
// connection had died. An operation with once is charged once per upload or session.
//
// A request that the budget refuses never touches the network. It fails with a
// [*budget.RefusedError], which [errors.Is] and [errors.As] also find inside a client's
// *url.Error. With [Options.Refused] the transport answers 429 instead, or waits.
//
// # From the charge to the response
//
// Each request holds a reservation from before it is sent until the response's header
// arrives, so it counts for as long as it may still reach the upstream. The lease bounds
// that time ([Options.Lease]): a request with no response by then is cancelled. The
// transport then settles the request at the units it was charged, or at the units that
// the response states (actual), which it reads while the caller reads the body. A 304
// costs the operation's not_modified. Closing a body before its end does not wait for the
// store: the cost is recorded in the background. Nor does a response that costs what was
// charged and says nothing else: it is settled with the next charge, or within a few
// milliseconds. [budget.Budget.Flush] and [budget.Budget.Close] wait for both.
//
// A request is released only if it provably never left: the base got no connection, or
// the context ended before the request was sent. The proof needs a base that reports its
// connections to [net/http/httptrace], as net/http's does. Every other request stays
// charged. A request that was abandoned without a response (a timeout, a cancelled
// context) may still arrive, so its reservation stays open for a second more, and is then
// settled at its units. A process that is killed leaves it open until its lease ends.
//
// # Feedback from responses
//
// The rules in costs.toml recognise, by a response's status, header and body, that the
// upstream refuses the credential, or how much quota it reports as left; see
// [budget.Feedback]. Locks are kept in the store, so every process stops. [VerdictOf]
// returns what a response meant, [ReceiptOf] what was charged for it. Bodies encoded with
// gzip, deflate, br or zstd are read too, and reach the caller unchanged. A value that
// cannot be read is reported to the Observer and the log as [Unread].
package budgethttp
