// Package budget keeps a program within the quota of an API that it calls. Before
// each call it checks, across all goroutines, processes and machines that share the
// quota, whether the call still fits; if not, it says when it will.
//
// A [Budget] is the units of one credential at one upstream, named
// "upstream/credential". Package open makes one from a costs.toml:
//
//	b, err := open.Budget(ctx, "costs.toml", "youtube/key1")
//	if err != nil {
//		return err
//	}
//	defer b.Close()
//
// # Before each call
//
// A call names an operation, which has a price in units:
//
//	_, err = b.Charge(ctx, budget.Call{Operation: "search.list"})
//
// Every limit that covers the operation is checked and charged in one atomic step,
// or nothing is charged. The count is exact in every trailing window, by the clock of
// the store.
//
// [Budget.Charge] is the verb for calls whose cost is known. [Budget.Reserve] is for
// calls whose cost is known only afterwards: settle the reservation with the actual
// cost, or release it. [Budget.Wait] waits until the call fits. Package budgethttp
// does all of it for an http.Client.
//
// # When a call is refused
//
// A refused call costs nothing. The error is a [*RefusedError], which says which
// limit refused it, what that has left, and when the same call will fit. Test it with
// [errors.Is]:
//
//	switch {
//	case errors.Is(err, budget.ErrExhausted): // retry at RetryAt
//	case errors.Is(err, budget.ErrUnavailable): // the store is out of reach
//	}
//
// What a call gets while the store is out of reach is its [Policy].
//
// # What has been spent
//
// [Budget.Status] says what is left of each limit, [Budget.Spent] who spent it, and
// [Budget.Would] what a call would get now.
//
// # The packages beside it
//
// Package limit has the limits and windows of a [Spec] written by hand. Wrap a store
// that you open yourself with outage.New before [New]: it keeps state on the host, to
// decide while the store is out of reach and to notice that the store has lost data.
// Without it no call fails open, and a store that starts empty is trusted.
// open.Budget does both. Package config reads costs.toml, driver is the contract of a
// store, and jobs/client is for programs that run under the daemon.
package budget
