package driver

import (
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// HistoryHour is the length of the hours by which history is kept, in µs. An hour begins
// at a multiple of it.
const HistoryHour int64 = 3_600_000_000

// HistoryKept is how long a store keeps history by default, in µs.
const HistoryKept int64 = 90 * 24 * HistoryHour

// KeptFor is how long a store keeps history by its option, in µs: HistoryKept for 0; −1, that
// is not at all, below 0.
func KeptFor(option time.Duration) int64 {
	switch {
	case option < 0:
		return -1
	case option == 0:
		return HistoryKept
	}
	return option.Microseconds()
}

// KeptOf is KeptFor for one budget, where no history is kept of the upstreams named in without.
func KeptOf(budget string, option time.Duration, without string) int64 {
	if without != "" {
		if upstream, _, _ := strings.Cut(budget, "/"); slices.Contains(strings.Fields(without), upstream) {
			option = -1
		}
	}
	return KeptFor(option)
}

// MaxSeries is how many series of operation, job and region one budget's history tells
// apart in a day (UTC), imported ones aside. What is charged for further ones that day is
// kept under its operation alone.
const MaxSeries = 1024

// HistoryQuery asks what was charged, hour by hour.
type HistoryQuery struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	// Since is an instant (µs); it is rounded down to the hour.
	Since int64
	// Hours, Operations, Jobs and Regions say what the rows keep apart; all else is
	// summed.
	Hours, Operations, Jobs, Regions bool
}

// History is the answer to a HistoryQuery.
type History struct {
	Now int64 // the earlier clock
	// Since is the hour (µs) in which the rows begin: the query's, or the first that
	// is kept.
	Since int64
	Rows  []HistoryRow // in no particular order
}

// HistoryRow is what was charged in one hour, or in all, for what the query keeps apart;
// other fields are zero. Drift and recovered units are rows for each limit, under its
// pseudo-operation, whatever the query keeps apart: they are no charges of calls.
type HistoryRow struct {
	Hour                   int64 // µs: when it began
	Operation, Job, Region string
	// Units and Calls are as settled; a released reservation counts in neither.
	Units, Calls int64
}

// Pseudo reports whether the row is drift or recovered units of a limit.
func (r HistoryRow) Pseudo() bool { return limit.IsPseudo(r.Operation) }

// Apart is the row with only those fields that the query keeps apart.
func (q HistoryQuery) Apart(r HistoryRow) HistoryRow {
	if !q.Hours {
		r.Hour = 0
	}
	if !q.Operations && !r.Pseudo() {
		r.Operation = ""
	}
	if !q.Jobs {
		r.Job = ""
	}
	if !q.Regions {
		r.Region = ""
	}
	return r
}

// HourOf is the beginning of an instant's hour, both in µs.
func HourOf(at int64) int64 { return at - at%HistoryHour }
