// Package simulate is a test: a month of the real scheduler and the real limiter in a
// minute of fake time, against a sandbox upstream that enforces a true quota of a Pacific
// day. Stores fail, daemons crash, clocks are wrong, answers are late. No request may be
// rejected, no tick lost, and little of the quota wasted. For comparison, the same month
// is run with jobs that each count on their own.
//
// A second month has shares, holds and deferral, beside the same with floors alone and with
// a crontab; a third has a stranger who spends too, and automatic headroom.
//
// make simulate prints it day by day; docs/simulate.md says how to read it.
package simulate
