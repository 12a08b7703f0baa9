// Package refusals remembers what a store refused, for a moment, so that a program that
// calls in a loop although its units are spent does not ask the store each time.
//
// A process that was refused until an instant gives the same refusal again, without the
// store, to a call that
//
//   - is checked against the same limits, in the same share, with the same floor, lease,
//     fence, policy and leave to spend headroom, and asks for at least as many units;
//   - has an id that was made for it. An id that a caller gave may be charged already, and
//     only the store knows.
//
// It does so for at most the span that [New] is given, counted from when the store was
// asked; until the refusal's instant; and until this process finishes a reservation, ends a
// lock or makes another change. What other processes give back meanwhile, the call gets one
// span late. Grants are never remembered; neither are dry runs, refusals by a host's
// allowance, and refusals because of a loss, since other hosts may end that at any time.
package refusals
