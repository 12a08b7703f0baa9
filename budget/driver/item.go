package driver

import (
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// CheckedBy reports whether a limit checks the item: it covers the item's operation, and,
// if it counts open reservations, the item is one. A hold is checked by the limits that count
// it and cover an operation of its needs.
func (i Item) CheckedBy(l limit.Limit) bool {
	if i.IsHold() {
		return CountsHold(l, i.Span) && slices.ContainsFunc(i.Needs, func(n Need) bool { return l.Covers(n.Operation) })
	}
	return l.Covers(i.Operation) && (l.Window.Kind != limit.Concurrent || i.Lease > 0)
}

// LeastRemaining is the index of the limit with the least left, among those that check
// the item, and how much it has left. Limits that count units come before those that
// count calls; the first of equals wins. −1: no limit checks the item. used returns what
// the limit at an index has used.
func LeastRemaining(limits []limit.Limit, item Item, used func(i int) int64) (index int, left int64) {
	index = -1
	for _, calls := range []bool{false, true} {
		for i, l := range limits {
			if (l.Counts == limit.CountCalls) != calls || !item.CheckedBy(l) {
				continue
			}
			if remaining := l.Remaining(used(i)); index < 0 || remaining < left {
				index, left = i, remaining
			}
		}
		if index >= 0 {
			break
		}
	}
	return index, left
}

// NeverFits reports whether the item cannot fit a limit that checks it, however long it
// waits. drawn: it draws all that it takes there from a hold, so that floor and shares are not
// checked.
func (i Item) NeverFits(l limit.Limit, drawn bool) bool {
	if drawn {
		return i.Amount(l) > l.Bound(0, i.UseHeadroom)
	}
	return l.NeverFits(i.Amount(l), i.Floor, i.UseHeadroom, l.ShareOf(i.Labels.Job), i.Lasts())
}
