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
}

type spent struct {
	Name  *string `json:"name,omitempty"` // empty for charges without the label
	Units int64   `json:"units"`
	Calls int64   `json:"calls"`
	Open  int64   `json:"open"`
	// Observed is how many of Calls would have been refused without observe mode.
	Observed int64   `json:"observed"`
	Share    float64 `json:"share"` // of all units, or of all calls when no units were spent
}

func NewLedger(s budget.Spent) Ledger {
	answer := Ledger{Budget: s.Budget, By: string(s.By), At: Instant(s.At), From: Instant(s.From), Since: Instant(s.Since), Rows: []spent{}}
	for _, row := range s.Rows {
		answer.Rows = append(answer.Rows, newSpent(&row.Name, row, s.Total))
	}
	answer.Total = newSpent(nil, s.Total, s.Total)
	return answer
}

func newSpent(name *string, row, total budget.SpentRow) spent {
	return spent{name, row.Units, row.Calls, row.Open, row.Observed, Share(row, total)}
}

// Share is a row's part of the total, from 0 to 1.
func Share(row, total budget.SpentRow) float64 {
	switch {
	case total.Units > 0:
		return float64(row.Units) / float64(total.Units)
	case total.Calls > 0:
		return float64(row.Calls) / float64(total.Calls)
	}
	return 0
}
