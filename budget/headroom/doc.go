// Package headroom is the arithmetic of automatic headroom: from what is known of a limit
// it works out how much to keep back of the limit's quota. Nothing here reads a clock or a
// store; package budget does.
//
// The headroom is a sum of four parts, at least 0.2 % of the quota and at most what the
// configuration allows ([limit.Limit.Auto]):
//
//   - Drift: the 0.99 quantile, by nearest rank, of what others' spending added in an hour,
//     among the hours of the last 14 days in which it added anything. With fewer than a hundred
//     such hours that would be their maximum, which the next may well exceed: then it is the
//     most of a calendar's day, or else of 24 hours, or of the window, if that is shorter.
//     Drift is recorded when
//     the upstream reports; until then it is unknown. What one report finds is never more
//     than its hour's sum, and the first report after a silent night has all of the night.
//   - InFlight: plain charges whose requests may reach the upstream only after a reset, or in
//     a rolling window later than they were charged: what was charged within the longest
//     request time. Reservations are not among them: open ones count in both periods, and
//     ended ones from their end.
//   - Clock: what is charged at the highest hourly rate within the difference between the
//     hosts' clocks and the store's: the least that a host measured in a period, of past
//     periods. Only calendars have it: in a rolling window both ends are by one clock. A guard
//     makes it, and InFlight, smaller.
//   - Outage: the hosts' outage part ([limit.Limit.OutagePart]).
//
// A part is raised at once, and lowered only after three full periods of evidence: each is
// the highest that it was since the third full period before the present one began. A full
// period counts as evidence if the upstream reported in it; with fewer than three, and
// without a history that reaches as far back, all that is allowed is kept back.
//
// The evidence is the same for all hosts: the store's history, and [Notes] that they share.
package headroom
