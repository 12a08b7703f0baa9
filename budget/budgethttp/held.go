package budgethttp

import (
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// held are reports on limits that count units, from a request whose cost is not known
// yet: the use that the upstream reports already includes that cost. If it is also
// unknown whether the request counts at all, they are all the reports.
type held struct {
	since   time.Time
	reports []reported
}

// hold separates the reports that must wait for the request's cost.
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

// release returns them. A reset given as a span counts from when they arrived.
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
