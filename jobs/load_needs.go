package jobs

import (
	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
)

// needs reads what is looked at before a run: the job's needs, else its one
// operation, else a unit. What stands above a limit with the job's floor could
// never be started.
func (l *loader) needs(job config.Node, t map[string]config.Node, j *Job, operation string, upstream config.Upstream, known bool) {
	j.Needs = budget.Needs{}
	for _, node := range t["needs"].List() {
		if node.FailUnquotedDots() {
			continue
		}
		calls, ok := node.Number(1, limit.MaxUnits)
		if ok && checkOperation(node, node.Key(), upstream, known) {
			j.Needs[node.Key()] = calls
		}
	}
	if t["needs"].IsTable() && len(t["needs"].List()) == 0 {
		t["needs"].Fail("needs is empty: write { \"operation\" = 1 }, or take it out")
	}
	at := t["needs"]
	if !at.Exists() {
		at = job
		switch {
		case j.Fetch != nil && j.Fetch.Operation != "":
			j.Needs[j.Fetch.Operation] = 1
		case operation != "":
			j.Needs[operation] = 1
		default:
			j.Needs[""] = 1
		}
	}
	if t["floor"].Exists() {
		at = t["floor"]
	}
	if known {
		checkFits(at, j, upstream)
	}
}

// checkFits notes a job whose needs and floor stand above a limit.
func checkFits(node config.Node, j *Job, upstream config.Upstream) {
	for _, l := range upstream.Limits {
		if l.Window.Kind == limit.Concurrent { // a plain charge is never open
			continue
		}
		left := l.Bound(j.Floor, false)
		covered := false
		for operation, calls := range j.Needs {
			units := int64(1)
			if operation != "" {
				units = price(upstream, operation)
			}
			if operation == "" && !l.CoversAll() || operation != "" && !l.Covers(operation) {
				continue
			}
			covered = true
			if each := l.Amount(units); each > 0 && (left < 0 || calls > left/each) {
				left = -1
			} else {
				left -= calls * each
			}
		}
		if covered && left < 0 {
			node.Fail("job %s could never start: what it needs and its floor of %d stand above limit %s (%d); lower needs or floor, or raise the limit",
				j.Name, j.Floor, l.Name, l.Limit)
			return
		}
	}
}

// price is what a call costs.
func price(upstream config.Upstream, operation string) int64 {
	if cost, known := upstream.Costs[operation]; known {
		return cost.Units
	}
	return upstream.Unknown.Units
}
