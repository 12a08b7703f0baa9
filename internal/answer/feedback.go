package answer

import (
	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
)

// Feedback is the JSON answer of feedback.
type Feedback struct {
	Budget    string   `json:"budget"`
	Operation string   `json:"operation"`
	ID        string   `json:"id"`
	Status    int      `json:"status"`
	Held      bool     `json:"held"`  // the store still held the reservation; if not, the cost is not recorded
	Units     int64    `json:"units"` // what the call cost; 0 if kept or no longer held
	Kept      bool     `json:"kept,omitempty"`
	Released  bool     `json:"released"`
	Refused   *verdict `json:"refused"` // null if no refusal rule matches
	Drift     []drift  `json:"drift"`
	Unread    []unread `json:"unread"` // what could not be read
}

type verdict struct {
	Rule  string  `json:"rule"`
	Means string  `json:"means"`
	Limit Text    `json:"limit"` // null: the whole budget is locked, or nothing is
	Until Instant `json:"locked_until"`
	Asked Instant `json:"asked_until"` // null: the lock was not cut
}

type drift struct {
	Limit string  `json:"limit"`
	Added int64   `json:"added"`
	Total int64   `json:"total"`
	Until Instant `json:"until"`
}

type unread struct {
	What  string `json:"what"`
	Rule  Text   `json:"rule"`  // null: it belongs to no rule
	Place Text   `json:"place"` // null: the body
	Why   string `json:"why"`
}

func NewFeedback(name string, call budget.Call, keep, held bool, status int, done budgethttp.Outcome) Feedback {
	answer := Feedback{
		Budget: name, Operation: call.Operation, ID: call.ID, Status: status, Held: held,
		Units: done.Units, Kept: keep, Released: done.Released, Drift: []drift{}, Unread: []unread{},
	}
	if v := done.Refused; v != nil {
		answer.Refused = &verdict{Rule: v.Rule, Means: string(v.Means), Limit: Text(v.Limit), Until: Instant(v.Until), Asked: Instant(v.Asked)}
	}
	for _, d := range done.Drifts {
		answer.Drift = append(answer.Drift, drift{Limit: d.Limit, Added: d.Added, Total: d.Total, Until: Instant(d.Until)})
	}
	for _, u := range done.Unread {
		answer.Unread = append(answer.Unread, unread{What: string(u.What), Rule: Text(u.Rule), Place: Text(u.Place), Why: u.Why})
	}
	return answer
}
