// Package budgethttp meters HTTP clients: [Transport] is an
// [http.RoundTripper] that charges every request to a budget before it is sent,
// and believes what the responses say about the upstream's quota.
//
//	transport, err := budgethttp.New(b, budgethttp.Options{})
//	client := &http.Client{Transport: transport}
//
// What a request costs is the price of its operation, which the patterns of
// costs.toml tell (match = "GET api.example.com/search"). Each attempt is charged:
// those that an SDK makes again and those that follow a redirect too, and what
// net/http sends again by itself on a new connection because a kept one had died.
// An operation with once is charged once per upload or session.
//
// A request that the budget refuses does not touch the network: its error is the
// [*budget.RefusedError], which callers find with [errors.Is] and [errors.As] also
// within the *url.Error of a client. [Options.Refused] chooses a response of status
// 429 instead, or to wait.
//
// # From the charge to the response
//
// A request is a reservation, so that it counts for as long as it may still reach
// the upstream: from before it is sent until the response's header has come. The
// lease bounds that ([Options.Lease]): a request without a response by then is
// cancelled. Afterwards it costs what it was charged, or what the response says
// (actual), read as the caller reads the body; a 304 what the operation's
// not_modified says. A body that is closed before its end does not wait for the store:
// what it told is recorded in the background, for which [budget.Budget.Flush] and
// [budget.Budget.Close] wait.
//
// Released is only what provably never left: no connection was got, or the context
// had ended before. It takes a base that reports its connections to
// [net/http/httptrace], as net/http's does. All else stays charged. Where the
// request was given up without a response (a timeout, a cancelled context) it may
// still be on its way: its reservation is left to the end of its lease.
//
// # What responses say
//
// The rules of costs.toml tell from a response's status, header and body that the
// upstream has locked the credential, or what is left; see [budget.Feedback]. A
// lock is kept in the store, so that all processes stop. [Told] is what a response
// meant. Bodies in gzip, deflate, br and zstd are looked at too, and get to the caller
// as they came. What of a response cannot be read is [Unread], which the Observer is
// told and the log has.
package budgethttp
