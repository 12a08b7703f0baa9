// Package budget decides, before a call to somebody else's API, whether units
// of its quota are left.
//
// A [Budget] is the units of one credential at one upstream, named
// "upstream/credential". Every call names an operation, which has a price; a
// call is checked against every [limit.Limit] that covers its operation, and all of
// them are decided and charged in one atomic step or not at all. The count is
// exact in every trailing window, over goroutines, processes and machines, as
// the store decides and the store's clock counts.
//
// Most jobs start with one line of package open:
//
//	b, err := open.Budget(ctx, "costs.toml", "youtube/key1")
//
// and then charge before each call; the doc of [Budget] says which verb to
// use when. A refusal is a [*RefusedError]; [ErrExhausted] tells a spent budget
// from a store out of reach ([ErrUnavailable]).
//
// What a limit counts over is package limit's, what a costs.toml says package
// config's, and what a store implements package driver's.
package budget
