package answer

import (
	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/rate"
)

// Rate is how fast a limit is spent, and when it is empty if that goes on.
type Rate struct {
	PerHour float64 `json:"units_per_hour"` // in what the limit counts, to a thousandth
	Charges int64   `json:"charges"`        // since Since, of which the rate is known
	Since   Instant `json:"since"`
	// EmptyAt is null if the limit resets before, or never runs out at this rate.
	EmptyAt  Instant `json:"empty_at"`
	ResetsAt Instant `json:"resets_at"` // null for a limit that is not a calendar's
}

func newRate(r *rate.Rate) *Rate {
	if r == nil {
		return nil
	}
	return &Rate{r.PerHour, r.Charges, Instant(r.Since), Instant(r.EmptyAt), Instant(r.ResetsAt)}
}

// BudgetRates are the rates of one budget, in the answer of jobs.
type BudgetRates struct {
	Budget string      `json:"budget"`
	Limits []LimitRate `json:"limits"`
}

// LimitRate is the rate of one limit.
type LimitRate struct {
	Name string `json:"name"`
	Rate *Rate  `json:"rate"`
}

func newBudgetRates(list []budget.Status) []BudgetRates {
	out := []BudgetRates{}
	for _, b := range list {
		one := BudgetRates{b.Budget, []LimitRate{}}
		for _, l := range b.Limits {
			one.Limits = append(one.Limits, LimitRate{l.Name, newRate(l.Rate)})
		}
		out = append(out, one)
	}
	return out
}
