package driver

import (
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// Need is what a pass is expected to take of one operation.
type Need struct {
	Operation string `json:"operation"`
	Units     int64  `json:"units"` // 0 to MaxUnits
	Calls     int64  `json:"calls"` // 0 to MaxUnits
}

// The bounds of holds.
const (
	// MaxHolds is how many holds a ledger keeps at a time; a further one is Overflow.
	MaxHolds = 64
	// MaxNeeds is how many operations a hold may be of.
	MaxNeeds = 32
)

// IsHold reports whether the item asks for a hold instead of a charge.
func (i Item) IsHold() bool { return len(i.Needs) > 0 }

// CountsHold reports whether a limit counts a hold of a pass that may take span µs: its
// window is at least that long. Buckets and limits on open reservations count none.
func CountsHold(l limit.Limit, span int64) bool {
	shortest := l.Window.Shortest()
	return shortest > 0 && shortest >= span
}

// AmountOf is how much needs come to in a limit, in what it counts, leaving out the
// operations that it does not cover.
func AmountOf(l limit.Limit, needs []Need) (amount int64) {
	for _, n := range needs {
		switch {
		case !l.Covers(n.Operation):
		case l.Counts == limit.CountCalls:
			amount += n.Calls
		default:
			amount += n.Units
		}
	}
	return amount
}

// Amount is how much the item would take of a limit that checks it, without what it draws.
func (i Item) Amount(l limit.Limit) int64 {
	if i.IsHold() {
		return AmountOf(l, i.Needs)
	}
	return l.Amount(i.Units)
}

// Lasts is how long an item may count from now on before it finishes, in µs: its lease, or how
// long the pass of a hold may take, if that is longer, since a hold is renewed.
func (i Item) Lasts() int64 {
	if i.IsHold() {
		return max(i.Lease, i.Span)
	}
	return i.Lease
}

// Operations are the operations of the item.
func (i Item) Operations() []string {
	if !i.IsHold() {
		return []string{i.Operation}
	}
	names := make([]string, len(i.Needs))
	for at, n := range i.Needs {
		names[at] = n.Operation
	}
	return names
}

// Hold is a pass's needs that are kept for it. It is named by Fence and Region.
type Hold struct {
	// Fence is that of the pass whose charges draw from it.
	Fence string `json:"fence"`
	// Region is the run that draws from it; empty: the whole pass.
	Region string `json:"region,omitempty"`
	Job    string `json:"job,omitempty"` // as a charge's label: what is held counts as its share's
	Span   int64  `json:"span"`          // how long the pass may take, in µs
	Since  int64  `json:"since"`         // when it was taken, in µs
	Until  int64  `json:"until"`         // the end of its lease, in µs
	Left   []Need `json:"left"`          // what was not drawn, in the order of its item's Needs
	// Drawn is what open reservations have drawn, by their ids.
	Drawn map[string]Need `json:"drawn,omitempty"`
}

// Amount is what the hold takes of a limit now.
func (h *Hold) Amount(l limit.Limit) int64 {
	if !CountsHold(l, h.Span) {
		return 0
	}
	return AmountOf(l, h.Left)
}

// Draw is what a charge of an item takes from the hold: up to its units, and its one call.
func (h *Hold) Draw(item Item) Need {
	draw := Need{Operation: item.Operation}
	if at := h.place(item.Operation); at >= 0 {
		draw.Units, draw.Calls = min(item.Units, h.Left[at].Units), min(1, h.Left[at].Calls)
	}
	return draw
}

// Take takes what a charge draws. It is noted for a reservation that is open, to be given
// back. What an earlier reservation drew whose id a new charge has must be forgotten before.
func (h *Hold) Take(id string, open bool, draw Need) {
	at := h.place(draw.Operation)
	if at < 0 {
		return
	}
	h.Left[at].Units -= draw.Units
	h.Left[at].Calls -= draw.Calls
	if open && (draw.Units > 0 || draw.Calls > 0) {
		if h.Drawn == nil {
			h.Drawn = map[string]Need{}
		}
		h.Drawn[id] = draw
	}
}

// End gives back what a reservation of some units drew above those that it ends at, and the
// call of one that is released, which ends at 0 units; or it takes what the reservation ends at
// above its units, as far as that is left. What it drew is then forgotten.
func (h *Hold) End(id string, reserved, units int64, released bool) {
	draw, drew := h.Drawn[id]
	if !drew {
		return
	}
	delete(h.Drawn, id)
	at := h.place(draw.Operation)
	h.Left[at].Units += draw.Units - min(draw.Units, units)
	h.Left[at].Units -= min(h.Left[at].Units, max(0, units-reserved))
	if released {
		h.Left[at].Calls += draw.Calls
	}
}

func (h *Hold) place(operation string) int {
	return slices.IndexFunc(h.Left, func(n Need) bool { return n.Operation == operation })
}

// HoldOf is the hold that an item draws from: its region's, else that of its whole pass;
// nil if none of these is in the list.
func HoldOf(holds []*Hold, item Item) *Hold {
	if item.Fence == "" || item.IsHold() {
		return nil
	}
	for _, region := range []string{item.Labels.Region, ""} {
		for _, h := range holds {
			if h.Fence == item.Fence && h.Region == region {
				return h
			}
		}
	}
	return nil
}

// HoldChange renews the holds of a pass, or ends one. The answer is [HoldLeft].
type HoldChange struct {
	Budget string
	Now    int64 // the caller's wall clock in µs, a witness
	// Fence is the pass's. With a Lease, in µs, up to MaxLease, all its holds end that long
	// after the later clock, unless they end later already. Without, the hold of Region
	// (empty: that of the whole pass) ends now.
	Fence  string
	Region string
	Lease  int64
}

// HoldLeft is the answer to a HoldChange.
type HoldLeft struct {
	Now int64 // the earlier clock
	// Holds are those that were renewed, as they are now, or the one that was ended, as it was,
	// without Drawn; none if their lease has ended or their pass was fenced off.
	Holds []Hold
}

func (c HoldChange) Doing() string { return "change a hold in " + c.Budget }
func (HoldChange) answer(HoldLeft) {}
func (HoldLeft) changed()          {}
