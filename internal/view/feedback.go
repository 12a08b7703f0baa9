package view

import (
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// Feedback says what became of a call, and what else its response said.
func Feedback(on screen.Screen, f answer.Feedback) string {
	did := "released"
	switch {
	case !f.Held:
		did = "no longer held"
	case f.Kept:
		did = "still open"
	case !f.Released:
		did = "settled at " + Plural(int(f.Units), "unit")
	}
	t := on.Table("BUDGET", "OPERATION", "ID", "DONE")
	t.Add(f.Budget, f.Operation, f.ID, did)
	out := t.String()
	if v := f.Refused; v != nil {
		said := on.Table("THE UPSTREAM SAYS", "BY RULE", "LOCKED")
		said.Add(v.Means, v.Rule, Locked(on, string(v.Limit), time.Time(v.Until)))
		out += "\n" + said.String()
		if !time.Time(v.Asked).IsZero() {
			out += on.Wrap("", "The lock was cut: it was asked for until "+on.Time(time.Time(v.Asked))+". Give refusal "+v.Rule+" a longest in costs.toml to lock that long.")
		}
	}
	if len(f.Drift) > 0 {
		drift := on.Table("LIMIT", ">NOT CHARGED BY US", ">IN ALL", "UNTIL")
		for _, d := range f.Drift {
			drift.Add(d.Limit, on.Number(d.Added), on.Number(d.Total), on.Time(time.Time(d.Until)))
		}
		out += "\n" + drift.String()
	}
	return out
}

// Locked is what a refusal has locked, a limit or with an empty name the budget, and until
// when; zero: nothing.
func Locked(on screen.Screen, limit string, until time.Time) string {
	switch {
	case until.IsZero():
		return "nothing"
	case limit == "":
		return "the budget until " + on.Time(until)
	}
	return "limit " + limit + " until " + on.Time(until)
}
