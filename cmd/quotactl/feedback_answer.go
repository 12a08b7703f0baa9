package main

import (
	"github.com/quotactl/quotactl/budget/budgethttp"
)

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
	if err := writeText(a.stdout, "\n"); err != nil {
		return err
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
