package answer

import (
	"time"

	"github.com/quotactl/quotactl/budget"
)

// History is the JSON answer of ledger --since.
type History struct {
	Budget   string  `json:"budget"`
	By       string  `json:"by"`
	Job      string  `json:"job,omitempty"` // the job whose charges these are; left out: all charges
	At       Instant `json:"at"`
	From     Instant `json:"from"`
	Since    Instant `json:"since"` // the history begins there; null: it has everything asked for
	Timezone string  `json:"timezone"`
	Rows     []entry `json:"rows"`
	Total    entry   `json:"total"`
	Beside   []entry `json:"beside"` // drift and recovered units of limits, in no sum
}

type entry struct {
	Name    *string  `json:"name,omitempty"` // empty for charges without the label
	Units   int64    `json:"units"`
	Calls   int64    `json:"calls"`
	Refused int64    `json:"refused"`
	Waited  int64    `json:"waited"`
	Part    *float64 `json:"part,omitempty"` // of all units, or of all calls when no units were spent
}

func NewHistory(h budget.History, zone *time.Location) History {
	answer := History{
		Budget: h.Budget, By: string(h.By), At: Instant(h.At), From: Instant(h.From), Since: Instant(h.Since),
		Timezone: zone.String(), Rows: []entry{}, Beside: []entry{},
	}
	part := func(row budget.HistoryRow) *float64 {
		part := Part(budget.SpentRow{Units: row.Units, Calls: row.Calls}, budget.SpentRow{Units: h.Total.Units, Calls: h.Total.Calls})
		return &part
	}
	for _, row := range h.Rows {
		answer.Rows = append(answer.Rows, entry{&row.Name, row.Units, row.Calls, row.Refused, row.Waited, part(row)})
	}
	for _, row := range h.Beside {
		answer.Beside = append(answer.Beside, entry{Name: &row.Name, Units: row.Units, Calls: row.Calls})
	}
	answer.Total = entry{nil, h.Total.Units, h.Total.Calls, h.Total.Refused, h.Total.Waited, part(h.Total)}
	return answer
}
