package driver

import "strings"

// Refusals counts, in a budget's history, calls that a limit refused for good or that had to
// wait for it. The answer is [Done]. Nothing is counted without a ledger or without history.
// After an error the outcome is unknown: the same counts again may count twice.
type Refusals struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	Counts []RefusalCount
}

// MaxRefusals is how many counts one [Refusals] may have.
const MaxRefusals = 128

// RefusalCount is how many calls of an hour were refused, and how many waited and were then
// granted.
type RefusalCount struct {
	Hour int64 // µs: when it began; a later hour than the store's counts as that
	// Limit is the limit's name; empty: the whole budget, as by a lock on it. Job may be empty.
	Limit, Operation, Job string
	Refused, Waited       int64 // below 0: so many of those counted before are none
}

func (r Refusals) Doing() string { return "count refusals of " + r.Budget }

func (Refusals) answer(Done) {}

// A store's history keeps these counts as the calls of operations with these prefixes,
// "refused/LIMIT/OPERATION". No real operation's name contains a slash.
const (
	refusedPrefix = "refused/"
	waitedPrefix  = "waited/"
)

// Rows are the rows that a store adds to its history at now, with the operations as it keeps
// them.
func (r Refusals) Rows(now int64) (rows []HistoryRow) {
	for _, c := range r.Counts {
		for prefix, n := range map[string]int64{refusedPrefix: c.Refused, waitedPrefix: c.Waited} {
			if n != 0 {
				rows = append(rows, HistoryRow{Hour: min(c.Hour, HourOf(now)), Operation: prefix + c.Limit + "/" + c.Operation, Job: c.Job, Calls: n})
			}
		}
	}
	return rows
}

// IsRefusal reports whether an operation of a history's row is a count of refusals or waits.
func IsRefusal(operation string) bool {
	return strings.HasPrefix(operation, refusedPrefix) || strings.HasPrefix(operation, waitedPrefix)
}

// Beyond is the operation under which a history keeps a series that is new in a day of
// [MaxSeries]: its own, or of refusals and waits only the limit.
func Beyond(operation string) string {
	if !IsRefusal(operation) {
		return operation
	}
	return operation[:strings.LastIndexByte(operation, '/')+1]
}

// asRefusal turns a row as a store keeps it into one of refusals or waits, if it is that.
func (r HistoryRow) asRefusal() (HistoryRow, bool) {
	if !IsRefusal(r.Operation) {
		return r, false
	}
	prefix, rest, _ := strings.Cut(r.Operation, "/")
	if prefix+"/" == refusedPrefix {
		r.Refused = r.Calls
	} else {
		r.Waited = r.Calls
	}
	r.Units, r.Calls = 0, 0
	r.Limit, r.Operation, _ = strings.Cut(rest, "/")
	return r, true
}
