package config

import (
	"github.com/quotactl/quotactl/budget/limit"
)

// checkLeases finds lease_units that no lease can have: too few for one call, or more than a
// limit ever grants; and operations whose calls a limit counts.
func (u *Upstream) checkLeases(costs []Node) {
	for _, cost := range costs {
		price := u.Costs[cost.Key()]
		for _, node := range cost.children() {
			if node.Key() == "lease_units" && price.LeaseUnits > 0 {
				u.checkLease(node, cost.Key(), price.Units, price.LeaseUnits)
			}
		}
	}
}

func (u *Upstream) checkLease(node Node, operation string, price, units int64) {
	switch {
	case price == 0:
		node.Fail("lease_units = %d for an operation that costs nothing: there is nothing to lease; take the key out", units)
	case units < price:
		node.Fail("lease_units = %d is less than one call costs (%d): write a multiple of that", units, price)
	}
	for _, l := range u.Limits {
		switch observes := u.Observe || l.Observe; {
		case !l.Covers(operation):
		case l.Window.Kind == limit.Concurrent:
			node.Fail("lease_units for an operation that limit %s covers: that counts open reservations, and a lease is one, however many calls it serves; take the key out, or keep the operation out of the limit", l.Name)
		case l.Counts == limit.CountCalls:
			node.Fail("lease_units for an operation that limit %s covers: that counts calls, and a lease is one call, however many it serves; take the key out, or have the limit count units", l.Name)
		case observes:
		case units > l.Limit:
			node.Fail("lease_units = %d is more than limit %s allows (%d): no lease could ever be charged; write a small part of the limit", units, l.Name, l.Limit)
		case len(l.Shares) > 0 && units > l.Most(-1):
			node.Fail("lease_units = %d is more than limit %s (%d) leaves beside what it guarantees to jobs (%d), and a lease has no job: write less, or guarantee less", units, l.Name, l.Limit, max(0, l.Most(-1)))
		}
	}
}
