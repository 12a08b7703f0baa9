package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// warnUnevenGuarantee warns of a guarantee that can never be spent in full, because no
// sum of prices is as large.
func (u *Upstream) warnUnevenGuarantee(node Node, l limit.Limit, share limit.Share) {
	if l.Counts != limit.CountUnits || share.Guarantee == 0 {
		return
	}
	var prices []int64
	for operation, cost := range u.Costs {
		if l.Covers(operation) {
			prices = append(prices, cost.Units)
		}
	}
	if left := limit.Unspendable(share.Guarantee, prices); left > 0 {
		least := prices[0]
		for _, price := range prices {
			if price > 0 && (price < least || least == 0) {
				least = price
			}
		}
		node.Warn("units = %s: of the %d units that share %s is guaranteed in limit %s, %d are less than the cheapest call costs (%d): use a multiple of a price", node.show(), share.Guarantee, share.Name, l.Name, left, least)
	}
}

// checkBesideGuarantees finds prices that do not fit beside what a limit guarantees to
// others than the caller. A limit that is guaranteed in full leaves nothing for calls
// without a share: that is meant.
func (u *Upstream) checkBesideGuarantees(costs []Node) {
	for _, cost := range costs {
		units := u.Costs[cost.Key()].Units
		for _, l := range u.Limits {
			amount := l.Amount(units)
			if len(l.Shares) == 0 || !l.Covers(cost.Key()) || amount > l.Limit {
				continue
			}
			able, unable := sharesFor(l, amount)
			left := l.Most(-1)
			switch {
			case len(able) == 0 && (u.Observe || l.Observe):
				cost.Warn("operation %q costs %d, more than limit %s (%d) leaves to any caller beside what it guarantees to others: the limit only observes; once it enforces, such a call could never be made",
					cost.Key(), units, l.Name, l.Limit)
			case len(able) == 0:
				cost.Fail("operation %q costs %d, more than limit %s (%d) leaves to any caller beside what it guarantees to others: it could never be called; guarantee less, raise the limit or lower the cost",
					cost.Key(), units, l.Name, l.Limit)
			case len(unable) > 0 || amount > left && left > 0:
				cost.Warn("operation %q costs %d, and limit %s leaves %d beside its guarantees: only jobs of share %s can ever call it; guarantee less if others are to call it too",
					cost.Key(), units, l.Name, left, strings.Join(able, ", "))
			}
		}
	}
}

// checkCallers finds operations that each limit leaves to somebody, and all limits to nobody.
func (u *Upstream) checkCallers(costs []Node) {
	callers := []string{""} // of no share
	for _, l := range u.Limits {
		for _, s := range l.Shares {
			if !slices.Contains(callers, s.Name) {
				callers = append(callers, s.Name)
			}
		}
	}
	if u.Observe {
		return
	}
	for _, cost := range costs {
		refusing := map[string]bool{} // limits, by name
		some := slices.ContainsFunc(callers, func(caller string) bool {
			at := slices.IndexFunc(u.Limits, func(l limit.Limit) bool {
				own := slices.IndexFunc(l.Shares, func(s limit.Share) bool { return s.Name == caller })
				refuses := !l.Observe && len(l.Shares) > 0 && l.Covers(cost.Key()) && l.Amount(u.Costs[cost.Key()].Units) > l.Most(own)
				refusing[l.Name] = refusing[l.Name] || refuses
				return refuses
			})
			return at < 0
		})
		var names []string
		for _, l := range u.Limits {
			if refusing[l.Name] {
				names = append(names, l.Name)
			}
		}
		if !some && len(names) > 1 {
			cost.Fail("operation %q costs %d: each of the limits %s leaves that to jobs of one of its shares alone, and no job has a share of all: it could never be called; divide them for the same jobs, or guarantee less",
				cost.Key(), u.Costs[cost.Key()].Units, strings.Join(names, " and "))
		}
	}
}

// sharesFor are the shares whose jobs may ever take an amount at once, and the others.
func sharesFor(l limit.Limit, amount int64) (able, unable []string) {
	for i, s := range l.Shares {
		if amount <= l.Most(i) {
			able = append(able, s.Name)
		} else {
			unable = append(unable, s.Name)
		}
	}
	return able, unable
}

// checkUnknownBeside finds a price for unknown operations that fits no caller beside what a
// limit guarantees to others.
func (u *Upstream) checkUnknownBeside(node Node) {
	for _, l := range u.Limits {
		amount := l.Amount(u.Unknown.Units)
		if !u.Unknown.Allowed || len(l.Shares) == 0 || !l.CoversAll() || amount > l.Limit || u.Observe || l.Observe {
			continue
		}
		if able, _ := sharesFor(l, amount); len(able) == 0 {
			node.Fail("unknown_operation = %d is more than limit %s (%d) leaves to any caller beside what it guarantees to others: such a call could never be made; guarantee less, raise the limit, lower the units, or write \"refuse\"",
				u.Unknown.Units, l.Name, l.Limit)
		}
	}
}

// checkSharesCall finds shares whose jobs can never call, because another limit that covers
// the same calls guarantees itself to others.
func (u *Upstream) checkSharesCall(tables []Node) {
	for _, table := range tables {
		for _, own := range u.Limits {
			i := slices.IndexFunc(own.Shares, func(s limit.Share) bool { return s.Name == table.Key() })
			if i < 0 {
				continue
			}
			for _, l := range u.Limits {
				least, some := u.cheapest(own, l)
				if len(l.Shares) == 0 || u.Observe || l.Observe || !some || l.Amount(least) <= l.Most(-1) {
					continue
				}
				outside := func(job string) bool {
					return !slices.ContainsFunc(l.Shares, func(s limit.Share) bool { return s.HasPattern(job) })
				}
				if at := slices.IndexFunc(own.Shares[i].Jobs, outside); at >= 0 {
					table.Fail("share %s is guaranteed units of limit %s, but limit %s leaves %d to job %q beside what it guarantees to others, less than any call costs (%d): the job could never call; give it a share of limit %s too, or guarantee less of that",
						table.Key(), own.Name, l.Name, max(0, l.Most(-1)), own.Shares[i].Jobs[at], l.Amount(least), l.Name)
					return
				}
			}
		}
	}
}

// warnApart warns of limits of which each fits a call only while guarantees have lapsed, and
// that never do so together.
func (u *Upstream) warnApart(tables []Node) {
	for i, a := range u.Limits {
		for _, b := range u.Limits[:i] {
			least, some := u.cheapest(a, b)
			if !some || u.Observe || a.Observe || b.Observe || len(a.Lapses()) == 0 || len(b.Lapses()) == 0 {
				continue
			}
			for own := -1; own < len(a.Shares); own++ {
				caller, other := "of no share", -1
				if own >= 0 {
					caller = "of share " + a.Shares[own].Name
					other = slices.IndexFunc(b.Shares, func(s limit.Share) bool { return s.Name == a.Shares[own].Name })
				}
				waits := []limit.Wait{a.Idle(a.Amount(least), own, anyInstant), b.Idle(b.Amount(least), other, anyInstant)}
				alone := waits[0].From(anyInstant) < limit.Never && waits[1].From(anyInstant) < limit.Never
				if alone && limit.FitsTogether(waits, anyInstant) == limit.Never {
					tables[i].Warn("limits %s and %s fit calls %s only once guarantees have lapsed, and these never lapse together: such a call can never be made; let them lapse at one time, or guarantee less", b.Name, a.Name, caller)
					break
				}
			}
		}
	}
}

// anyInstant is from when on check looks for instants, so that it always says the same: µs.
const anyInstant = 1_767_225_600_000_000 // 2026-01-01

// cheapest is the lowest price of the operations that both limits cover; false if there is
// none.
func (u *Upstream) cheapest(a, b limit.Limit) (least int64, some bool) {
	for operation, cost := range u.Costs {
		if a.Covers(operation) && b.Covers(operation) && (!some || cost.Units < least) {
			least, some = cost.Units, true
		}
	}
	return least, some
}

// dearest is the highest price of the operations that a limit covers.
func (u *Upstream) dearest(l limit.Limit) (operation string, units int64) {
	for name, cost := range u.Costs {
		if l.Covers(name) && (operation == "" || cost.Units > units || cost.Units == units && name < operation) {
			operation, units = name, cost.Units
		}
	}
	return operation, units
}

// warnUndivided warns of enforcing limits that are not divided although they cover calls
// that a divided limit covers: they refuse a share within its guarantee.
func (u *Upstream) warnUndivided(tables []Node) {
	for i, l := range u.Limits {
		if len(l.Shares) > 0 || l.Observe || u.Observe {
			continue
		}
		what, cure := "is not divided", "divide it too: name it in the share's limits, or write another share for the same jobs, with limits and units that suit this limit"
		if !l.CanDivide() {
			what, cure = fmt.Sprintf("is a %s limit, which cannot be divided", l.Window.Kind), "make it large enough for all jobs at once, or keep other jobs out of its operations"
		}
		if operation, units := u.dearest(l); l.CanDivide() && l.Amount(units) == l.Limit {
			what, cure = fmt.Sprintf("cannot be divided, since %s takes all of it (%d)", operation, l.Limit), "a call that needs the whole limit fits only while nobody else calls for that long: raise the limit, or keep other jobs out of its operations"
		}
		for _, other := range u.Limits {
			if len(other.Shares) == 0 || !u.shareOperations(l, other) {
				continue
			}
			tables[i].Warn("limit %s %s, and covers calls that the divided limit %s covers: it can refuse share %s within its guarantee; %s", l.Name, what, other.Name, other.Shares[0].Name, cure)
			break
		}
	}
}

// shareOperations reports whether two limits cover one priced operation.
func (u *Upstream) shareOperations(a, b limit.Limit) bool {
	_, some := u.cheapest(a, b)
	return some
}

// boundShares finds shares of more jobs than a ledger counts apart.
func (u *Upstream) boundShares(node Node) {
	patterns := len(limit.Patterns(u.Limits))
	if patterns > driver.MaxPatterns {
		node.Fail("the shares name %d jobs and patterns: use at most %d; a pattern such as \"tenant.*\" stands for many jobs", patterns, driver.MaxPatterns)
		return
	}
	if n := patterns * len(u.Costs); n > driver.MaxPairs {
		node.Warn("%d operations for %d jobs and patterns of shares are %d pairs, and a ledger counts the charges of %d apart: those of further pairs count for no share, so that a share may be refused within its guarantee; name fewer jobs by patterns such as \"tenant.*\"",
			len(u.Costs), patterns, n, driver.MaxPairs)
	}
}
