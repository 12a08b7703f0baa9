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

// room is the room left at that decision; it is empty if that is unknown.
func (s *seen) room() waitRoom {
	if s.length() == 0 {
		return waitRoom{}
	}
	return waitRoom{s.limits, slices.Clone(s.used)}
}

// take counts an item if it fits. It is false if the item does not fit, or if the room
// is unknown.
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

// rank is what a waiter may take of each limit. With a floor, or without the headroom, it leaves
// units to more important calls.
type rank struct {
	Floor    int64 `json:"floor,omitempty"`
	Headroom bool  `json:"headroom,omitempty"`
}

func rankOf(item driver.Item) rank { return rank{item.Floor, item.UseHeadroom} }

// yields reports whether a waiter of this rank holds up none of the other: it leaves them units.
func (r rank) yields(other rank) bool {
	return r != other && r.Floor >= other.Floor && (other.Headroom || !r.Headroom)
}
