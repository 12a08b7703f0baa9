package driver

// GroupBy names what a [SpentQuery] groups by.
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
	// Span in µs: entries whose score is above now − Span count, and open reservations
	// always; 0: all that is held.
	Span int64
	By   GroupBy
	// Run, unless it is empty, is the label of the only run whose entries count. Merged
	// entries have no such label.
	Run string
}

// Spent is the answer to a SpentQuery.
type Spent struct {
	Now int64 // the earlier clock
	// Since is the instant (µs) up to which the ledger has forgotten what finished; 0:
	// it has forgotten nothing.
	Since int64
	// Rows are in no particular order, without released entries.
	Rows []SpentRow
}

// SpentRow is what one group spent. The empty name stands for charges without
// that label, and for runs that were merged.
type SpentRow struct {
	Name  string
	Units int64 // an open reservation counts what was reserved
	Calls int64
	Open  int64 // reservations whose lease has not ended
	// Observed is how many of Calls went through only because of observe mode.
	Observed int64
}
