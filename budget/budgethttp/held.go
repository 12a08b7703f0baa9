package budgethttp

import (
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// held are reports on limits that count units, of a request whose cost is not known
// yet: what the upstream says is used has that cost in it already. Where it is not
// known either whether the request counts, they are all.
type held struct {
	since   time.Time
	reports []reported
}

// hold takes out of the reports those that wait for the request's cost.
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

// release hands them out. What comes back after a span does so counted from when
// they came.
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
