package budget

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// waitRoom is what is left of a budget's limits, for several calls.
type waitRoom struct {
	limits []limit.Limit
	used   []int64
}

// room is what was left when it was seen; none where that is not known.
func (s *seen) room() waitRoom {
	if s.length() == 0 {
		return waitRoom{}
	}
	return waitRoom{s.limits, slices.Clone(s.used)}
}

// take takes an item's part, where that fits.
func (r waitRoom) take(item driver.Item) bool {
	for i, l := range r.limits {
		if item.CheckedBy(l) && !l.Observe && r.used[i] > l.Bound(item.Floor, item.UseHeadroom)-l.Amount(item.Units) {
			return false
		}
	}
	for i, l := range r.limits {
		if item.CheckedBy(l) {
			r.used[i] += l.Amount(item.Units)
		}
	}
	return len(r.limits) > 0
}

// asksAtLeast reports whether an item that is checked against the same limits as another
// is refused wherever that is.
func asksAtLeast(i, other driver.Item) bool {
	return i.Units >= other.Units && i.Floor >= other.Floor && (other.UseHeadroom || !i.UseHeadroom)
}
