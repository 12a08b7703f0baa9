package budgethttp

import (
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// held are reports that wait for the request's cost, because the upstream's figure
// already includes it: those on limits that count units, or all if it is unknown
// whether the request counts at all.
type held struct {
	since   time.Time
	reports []reported
}

// hold removes the reports that wait for the request's cost.
func (a *attempt) hold(reports []reported, all bool) (now []reported, h held) {
	h.since = time.Now()
	for _, one := range reports {
		if all || a.countsUnits(one.rule.Limit) {
			h.reports = append(h.reports, one)
		} else {
			now = append(now, one)
		}
	}
	return now, h
}

// release returns them. A reset after a span counts from when the report came.
func (h held) release() []reported {
	for i := range h.reports {
		if after := &h.reports[i].reset.After; *after > 0 {
			*after = max(1, *after-time.Since(h.since))
		}
	}
	return h.reports
}

func (a *attempt) countsUnits(named string) bool {
	for _, l := range a.spec.Limits {
		if l.Name == named {
			return l.Counts != limit.CountCalls
		}
	}
	return false
}
