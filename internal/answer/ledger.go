package answer

import "github.com/quotactl/quotactl/budget"

// Ledger is the JSON answer of ledger.
type Ledger struct {
	Budget string  `json:"budget"`
	By     string  `json:"by"`
	At     Instant `json:"at"`
	From   Instant `json:"from"`  // null for the whole ledger
	Since  Instant `json:"since"` // the ledger has forgotten what finished up to then; null: it has everything asked for
	Rows   []spent `json:"rows"`
	Total  spent   `json:"total"`
	// Shares are what each share of the budget's limits has used by now; left out if no limit
	// is divided.
	Shares []SharedLimit `json:"shares,omitempty"`
}

// SharedLimit is one share of a limit.
type SharedLimit struct {
	Limit string `json:"limit"`
	LimitShare
}

type spent struct {
	Name  *string `json:"name,omitempty"` // empty for charges without the label
	Units int64   `json:"units"`
	Calls int64   `json:"calls"`
	Open  int64   `json:"open"`
	// Observed is how many of Calls would have been refused without observe mode.
	Observed int64   `json:"observed"`
	Part     float64 `json:"part"` // of all units, or of all calls when no units were spent
}

// NewLedger makes the answer from what was spent and the limits' status.
func NewLedger(s budget.Spent, limits []budget.LimitStatus) Ledger {
	answer := Ledger{Budget: s.Budget, By: string(s.By), At: Instant(s.At), From: Instant(s.From), Since: Instant(s.Since), Rows: []spent{}}
	for _, row := range s.Rows {
		answer.Rows = append(answer.Rows, newSpent(&row.Name, row, s.Total))
	}
	answer.Total = newSpent(nil, s.Total, s.Total)
	for _, l := range limits {
		for _, share := range newShares(l) {
			answer.Shares = append(answer.Shares, SharedLimit{l.Name, share})
		}
	}
	return answer
}

func newSpent(name *string, row, total budget.SpentRow) spent {
	return spent{name, row.Units, row.Calls, row.Open, row.Observed, Part(row, total)}
}

// Part is a row's part of the total, from 0 to 1.
func Part(row, total budget.SpentRow) float64 {
	switch {
	case total.Units > 0:
		return float64(row.Units) / float64(total.Units)
	case total.Calls > 0:
		return float64(row.Calls) / float64(total.Calls)
	}
	return 0
}
