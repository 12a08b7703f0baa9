package driver

// GroupBy names what a [SpentQuery] tells apart.
type GroupBy string

// What spent units may be grouped by.
const (
	ByOperation GroupBy = "operation"
	ByJob       GroupBy = "job"
	ByRegion    GroupBy = "region"
	ByRun       GroupBy = "run"
)

// SpentQuery asks who spent what.
type SpentQuery struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	// Span in µs: entries whose score is above now − Span count, open
	// reservations always; 0 for all that is held.
	Span int64
	By   GroupBy
}

// Spent is the answer to a SpentQuery.
type Spent struct {
	Now int64 // the clock that frees, not clamped
	// Since is the instant (µs) up to which the ledger has forgotten what
	// finished; 0 when it has forgotten nothing.
	Since int64
	// Rows are in no order. Released entries are not among them.
	Rows []SpentRow
}

// SpentRow is what one group spent. The empty name stands for charges without
// that label, and for runs that were merged.
type SpentRow struct {
	Name  string
	Units int64 // of open reservations what was reserved
	Calls int64
	Open  int64 // reservations that are open: their lease has not ended
	// Observed is how many of Calls would have been refused, but for observe mode.
	Observed int64
}
