package main

import (
	"fmt"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/serve"
)

// feedbackAnswer is the JSON answer of feedback.
type feedbackAnswer struct {
	Budget    string         `json:"budget"`
	Operation string         `json:"operation"`
	ID        string         `json:"id"`
	Status    int            `json:"status"`
	Held      bool           `json:"held"`  // the store still held the reservation; else the cost is not recorded
	Units     int64          `json:"units"` // what the call cost; 0 where kept, or no longer held
	Kept      bool           `json:"kept,omitempty"`
	Released  bool           `json:"released"`
	Refused   *verdictAnswer `json:"refused"` // null where no refusal fits
	Drift     []driftAnswer  `json:"drift"`
	Unread    []unreadAnswer `json:"unread"` // what could not be read
}

type verdictAnswer struct {
	Rule  string        `json:"rule"`
	Means string        `json:"means"`
	Limit serve.Text    `json:"limit"` // null: the whole budget, or nothing
	Until serve.Instant `json:"locked_until"`
}

type driftAnswer struct {
	Limit string        `json:"limit"`
	Added int64         `json:"added"`
	Total int64         `json:"total"`
	Until serve.Instant `json:"until"`
}

type unreadAnswer struct {
	What  string     `json:"what"`
	Rule  serve.Text `json:"rule"`  // null: it is no rule's
	Place serve.Text `json:"place"` // null: the body
	Why   string     `json:"why"`
}

func newFeedbackAnswer(name string, call budget.Call, keep, held bool, status int, done budgethttp.Outcome) feedbackAnswer {
	answer := feedbackAnswer{
		Budget: name, Operation: call.Operation, ID: call.ID, Status: status, Held: held,
		Units: done.Units, Kept: keep, Released: done.Released, Drift: []driftAnswer{}, Unread: []unreadAnswer{},
	}
	if v := done.Refused; v != nil {
		answer.Refused = &verdictAnswer{Rule: v.Rule, Means: string(v.Means), Limit: serve.Text(v.Limit), Until: serve.Instant(v.Until)}
	}
	for _, d := range done.Drifts {
		answer.Drift = append(answer.Drift, driftAnswer{Limit: d.Limit, Added: d.Added, Total: d.Total, Until: serve.Instant(d.Until)})
	}
	for _, u := range done.Unread {
		answer.Unread = append(answer.Unread, unreadAnswer{What: string(u.What), Rule: serve.Text(u.Rule), Place: serve.Text(u.Place), Why: u.Why})
	}
	return answer
}

// writeOutcome writes what became of the call, and what else the response said.
func (a *app) writeOutcome(name string, f feedbackFlags, held bool, done budgethttp.Outcome) error {
	did := "released"
	switch {
	case !held:
		did = "no longer held"
	case f.keep:
		did = "still open"
	case !done.Released:
		did = "settled at " + plural(int(done.Units), "unit")
	}
	t := newTable("BUDGET", "OPERATION", "ID", "DONE")
	t.add(name, f.call.Operation, f.call.ID, did)
	if err := t.write(a.stdout); err != nil {
		return err
	}
	said := newTable("THE UPSTREAM SAYS", "BY RULE", "LOCKED")
	if v := done.Refused; v != nil {
		said.add(string(v.Means), v.Rule, lockedText(v))
	}
	if err := a.writeBelow(said); err != nil {
		return err
	}
	drift := newTable("LIMIT", ">NOT CHARGED BY US", ">IN ALL", "UNTIL")
	for _, d := range done.Drifts {
		drift.add(d.Limit, number(d.Added), number(d.Total), showTime(d.Until))
	}
	return a.writeBelow(drift)
}

// writeBelow writes a table below another, where it has rows.
func (a *app) writeBelow(t *table) error {
	if len(t.rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(a.stdout); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return t.write(a.stdout)
}

// lockedText is what a refusal has locked, and until when.
func lockedText(v *budgethttp.Verdict) string {
	switch {
	case v.Until.IsZero():
		return "nothing"
	case v.Limit == "":
		return "the budget until " + showTime(v.Until)
	}
	return "limit " + v.Limit + " until " + showTime(v.Until)
}
