// Package simulate is a test: a month of the real scheduler and the real limiter
// in a minute of fake time, against a sandbox upstream that holds to a true quota
// of a Pacific day. Stores go away, daemons crash, clocks are set wrong, answers
// are late; and no request may be rejected, no tick lost, and little of the quota
// wasted. Beside it stands the same month for jobs that each count on their own.
//
// make simulate prints it day by day; docs/simulate.md says how to read it.
package simulate
