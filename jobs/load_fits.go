package jobs

import (
	"slices"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
)

// checkFits reports a job whose needs and floor together exceed a limit, or whose needs can
// never fit beside what the limit guarantees to others.
func checkFits(node config.Node, j *Job, upstream config.Upstream) {
	for _, l := range upstream.Limits {
		if l.Window.Kind == limit.Concurrent { // a plain charge is never open
			continue
		}
		bound := l.Bound(j.Floor, false)
		left := bound
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
			node.Fail("job %s could never start: its needs and its floor of %d exceed limit %s (%d); lower needs or floor, or raise the limit",
				j.Name, j.Floor, l.Name, l.Limit)
			return
		}
		needs, most := bound-left, l.Most(l.ShareOf(j.Name))
		if covered && needs > most && !l.Observe && !upstream.Observe {
			node.Fail("job %s could never start: it needs %d, and limit %s (%d) leaves it %d beside what is guaranteed to other jobs; lower needs, guarantee less to the others, or put the job into a share",
				j.Name, needs, l.Name, l.Limit, most)
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

// warnUneven warns of guarantees of which a part can never be spent by the calls that the
// share's jobs make, although calls at other prices could. It looks at shares for configured
// jobs alone, whose operations are known.
func warnUneven(cfg *config.Config, list []*Job) {
	for _, u := range cfg.Upstreams {
		for _, l := range u.Limits {
			for _, s := range l.Shares {
				prices, first := pricesOf(s, l, u, list)
				left := limit.Unspendable(s.Guarantee, prices)
				if l.Counts != limit.CountUnits || left == 0 || limit.Unspendable(s.Guarantee, allPrices(l, u)) > 0 {
					continue // package config has warned of the last
				}
				at := slices.IndexFunc(cfg.Jobs, func(node config.Node) bool { return node.Key() == first })
				cfg.Jobs[at].Warn("job %s: of the %d units that share %s is guaranteed in limit %s, %d are less than the cheapest call of its jobs costs (%d): use a multiple of a price",
					first, s.Guarantee, s.Name, l.Name, left, slices.Min(prices))
			}
		}
	}
}

// allPrices are those of the operations that a limit covers.
func allPrices(l limit.Limit, u config.Upstream) (prices []int64) {
	for operation, cost := range u.Costs {
		if l.Covers(operation) {
			prices = append(prices, cost.Units)
		}
	}
	return prices
}

// pricesOf are the prices above 0 of all calls that the jobs of a share make and a limit
// counts, and the first of these jobs; none if they are not all known.
func pricesOf(s limit.Share, l limit.Limit, u config.Upstream, list []*Job) (prices []int64, first string) {
	for _, name := range s.Jobs {
		at := slices.IndexFunc(list, func(j *Job) bool { return j.Name == name && j.upstream == u.Name })
		if at < 0 {
			return nil, ""
		}
		for operation := range list[at].Needs {
			switch units := price(u, operation); {
			case operation == "":
				return nil, ""
			case l.Covers(operation) && units > 0:
				prices = append(prices, units)
			}
		}
	}
	return prices, s.Jobs[0]
}
