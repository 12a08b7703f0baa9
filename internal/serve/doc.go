// Package serve lets programs in any language charge calls over HTTP.
//
//	POST /v1/charge         one charge, or a reservation
//	POST /v1/settle         record what a reserved call cost
//	POST /v1/release        give back a reserved call that was never sent
//	GET  /v1/status         what is left
//	GET  /v1/overview       budgets, jobs and alerts
//	GET  /v1/openapi.json   the OpenAPI description of these paths
//
// A [Server] is an http.Handler for these paths. It caches no answer: the store
// decides each charge, or a lease hands out units that are charged already. All requests for one name share one budget.Budget, so charges
// that arrive together are decided together. The caller provides the listener, with its
// timeouts and TLS.
//
// The JSON answers are those of the commands of the same names with --json; package
// answer defines them.
package serve
