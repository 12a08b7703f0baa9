package answer

import (
	"context"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// Findings are what the status of a budget shows of how it is set up: whether all hosts
// divide its limits alike, and whether automatic headrooms suffice. There are none if nothing
// is divided or automatic, or the store does not answer.
func Findings(ctx context.Context, b *budget.Budget) (list []driver.Finding) {
	status, err := b.Status(ctx)
	if err != nil { // the totals' finding says it
		return nil
	}
	if f, some := sharesFinding(status); some {
		list = append(list, f)
	}
	if f, some := headroomFinding(status); some {
		list = append(list, f)
	}
	return list
}

// sharesFinding tells whether all hosts divide a budget's limits alike; false if none does.
func sharesFinding(status budget.Status) (f driver.Finding, some bool) {
	f = driver.Finding{Check: "shares of " + status.Budget, Level: driver.OK, Says: "all hosts that charged within the last hour have the same shares"}
	var hosts []string
	for _, o := range status.OtherShares {
		hosts = append(hosts, o.Host)
	}
	if len(hosts) > 0 {
		f.Level = driver.Warning
		f.Says = "other shares than here, or none, are in use on " + strings.Join(slices.Compact(slices.Sorted(slices.Values(hosts))), ", ")
		f.Advice = "give all hosts the same shares: what is guaranteed holds only where they are the same; a host is forgotten an hour after its last charge"
	}
	divided := slices.ContainsFunc(status.Limits, func(l budget.LimitStatus) bool { return len(l.Shares) > 0 })
	return f, divided || len(hosts) > 0
}

// headroomFinding says what automatic headrooms are made of, and warns of those that should
// be more than they may be; false if none is automatic.
func headroomFinding(status budget.Status) (f driver.Finding, some bool) {
	f = driver.Finding{Check: "automatic headroom of " + status.Budget, Level: driver.OK}
	var says []string
	for _, l := range status.Limits {
		if l.Parts == nil {
			continue
		}
		says = append(says, "limit "+l.Name+" keeps back "+l.Parts.String())
		if l.Parts.Capped() {
			f.Level, f.Advice = driver.Warning, "raise max, or lower outage_allowance: until then the upstream may reject calls"
		}
	}
	f.Says = strings.Join(says, "; ")
	return f, len(says) > 0
}
