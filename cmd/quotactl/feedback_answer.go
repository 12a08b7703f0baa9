package main

import (
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
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
		did = "settled at " + view.Plural(int(done.Units), "unit")
	}
	t := table.New("BUDGET", "OPERATION", "ID", "DONE")
	t.Add(name, f.call.Operation, f.call.ID, did)
	if err := t.Write(a.stdout); err != nil {
		return err
	}
	said := table.New("THE UPSTREAM SAYS", "BY RULE", "LOCKED")
	if v := done.Refused; v != nil {
		said.Add(string(v.Means), v.Rule, lockedText(v))
	}
	if err := a.writeBelow(said); err != nil {
		return err
	}
	drift := table.New("LIMIT", ">NOT CHARGED BY US", ">IN ALL", "UNTIL")
	for _, d := range done.Drifts {
		drift.Add(d.Limit, view.Number(d.Added), view.Number(d.Total), view.Time(d.Until))
	}
	return a.writeBelow(drift)
}

// writeBelow writes a table below another, where it has rows.
func (a *app) writeBelow(t *table.Table) error {
	if t.Empty() {
		return nil
	}
	if err := writeText(a.stdout, "\n"); err != nil {
		return err
	}
	return t.Write(a.stdout)
}

// lockedText is what a refusal has locked, and until when.
func lockedText(v *budgethttp.Verdict) string {
	switch {
	case v.Until.IsZero():
		return "nothing"
	case v.Limit == "":
		return "the budget until " + view.Time(v.Until)
	}
	return "limit " + v.Limit + " until " + view.Time(v.Until)
}
