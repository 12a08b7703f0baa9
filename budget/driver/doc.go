// Package driver is what a store implements. It is for programmers who write or wrap a
// store; programs that spend units use package budget. It may change in minor versions.
//
// Implement [Store], which keeps ledgers and decides on them, and [JobStore], which
// keeps the jobs' documents. CONTRACT.md beside this file says what each answer must
// be, with an example for each rule. Package memstore implements the rules by their
// definition: where it and the contract differ, the contract holds.
//
// To wrap a store, embed it and override what you need. The seven rare changes of a
// ledger ([Recovery], [Report], [Lock], [Unlock], [Reset], [AcceptClock], [Import]) all
// go through [Store.Change], so that a wrapper forwards one method; callers use
// [Apply], which returns each change's own answer.
//
// Units. Instants and spans are int64 microseconds (µs): instants since the Unix
// epoch, on the store's clock unless a field says otherwise; Now is always the caller's
// wall clock. Amounts are units or calls, 0 to [limit.MaxUnits].
//
// Errors wrap one of this package's, or the context's: see [ErrUnavailable]. A refusal is
// not an error but a [Result].
//
// Tests. Package internal/storetest checks a store against the contract. Call the first
// three from the tests of every store, and the others if they apply:
//
//   - Run: each rule by name, on one process
//   - Walk: a random walk on the store and on memstore; every answer must be the same
//   - Soak: millions of steps on a large ledger
//   - Losses, Splits, Histories and NewestOnce: losses of data, which package outage
//     must repair; for a store that outlives its processes
//   - Processes: several processes on one store, if they may share it
//   - NoSecret: no error shows the password, if the store has one
package driver
