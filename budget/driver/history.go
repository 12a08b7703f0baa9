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

// MaxSeries is how many series one budget's history tells apart in a day (UTC), imported ones
// aside: of operation, job and region, and for [Refusals] of limit, operation and job. What
// comes of further ones that day is kept under its operation alone, or its limit alone.
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
	// Refusals asks for calls that were refused or waited, too; Limits keeps apart by which
	// limit.
	Refusals, Limits bool
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
	// Of calls that were refused, or granted after a wait, as [Refusals] counts them. They are
	// in no region.
	Limit           string
	Refused, Waited int64
}

// Pseudo reports whether the row is drift or recovered units of a limit.
func (r HistoryRow) Pseudo() bool { return limit.IsPseudo(r.Operation) }

// HistorySums sums rows by what a query keeps apart.
type HistorySums struct {
	query HistoryQuery
	rows  map[HistoryRow]HistoryRow // the sums, by the row without them
}

// Sums begins the sums for a query.
func (q HistoryQuery) Sums() HistorySums {
	return HistorySums{q, map[HistoryRow]HistoryRow{}}
}

// Add adds a row as a store keeps it.
func (s HistorySums) Add(row HistoryRow) {
	row, isRefusal := row.asRefusal()
	q := s.query
	if isRefusal && !q.Refusals {
		return
	}
	if !q.Hours {
		row.Hour = 0
	}
	if !q.Operations && !row.Pseudo() {
		row.Operation = ""
	}
	if !q.Jobs {
		row.Job = ""
	}
	if !q.Regions {
		row.Region = ""
	}
	if !q.Limits {
		row.Limit = ""
	}
	key := row
	key.Units, key.Calls, key.Refused, key.Waited = 0, 0, 0, 0
	sum := s.rows[key]
	row.Units, row.Calls = row.Units+sum.Units, row.Calls+sum.Calls
	row.Refused, row.Waited = row.Refused+sum.Refused, row.Waited+sum.Waited
	s.rows[key] = row
}

// Rows are the rows that are not all zero.
func (s HistorySums) Rows() (rows []HistoryRow) {
	for key, row := range s.rows {
		if row != key {
			rows = append(rows, row)
		}
	}
	return rows
}

// HourOf is the beginning of an instant's hour, both in µs.
func HourOf(at int64) int64 { return at - at%HistoryHour }
