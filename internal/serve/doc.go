// Package serve is the way in for jobs in any language: decisions over HTTP.
//
//	POST /v1/charge         one charge, or a reservation
//	POST /v1/settle         what a reserved call cost
//	POST /v1/release        a reserved call was never sent
//	GET  /v1/status         what is left
//	GET  /v1/openapi.json   the description of all of this
//
// A [Server] is an http.Handler for these paths and keeps no answer: each charge
// is decided by the store. It shares one budget.Budget for each name among all
// requests, so that what comes at once is decided together. The listener, with
// its timeouts and TLS, is the caller's.
//
// The JSON answers are those of the commands of the same names with --json; their
// types stand here, so that there is one definition of each.
package serve
