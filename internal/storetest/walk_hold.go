package storetest

import (
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// passJob is the job of a pass, by its fence.
func passJob(fence string) string {
	if fence == "~job/1" {
		return "nightly"
	}
	return "feeds.us"
}

// holdItem asks for a hold of one of two passes, or of a run of it.
func (w *walker) holdItem(limits []limit.Limit) driver.Item {
	fence := w.fence()
	i := driver.Item{
		ID: fmt.Sprintf("hold-%d-%d", w.step, len(w.ids)), Fence: fence, Labels: driver.Labels{Job: passJob(fence)},
		Lease: []int64{second, hour, 24 * hour}[w.rng.IntN(3)], Span: []int64{0, 0, second, minute, 24 * hour}[w.rng.IntN(5)],
		UseHeadroom: w.rng.IntN(6) == 0, DryRun: w.rng.IntN(12) == 0,
	}
	if w.rng.IntN(2) == 0 {
		i.Labels.Region = "US"
	}
	if w.rng.IntN(5) == 0 {
		i.Floor = w.rng.Int64N(10)
	}
	for _, at := range w.rng.Perm(len(walkOperations))[:1+w.rng.IntN(3)] {
		n := driver.Need{Operation: walkOperations[at], Units: w.rng.Int64N(1 + limits[0].Limit/[]int64{2, 6}[w.rng.IntN(2)]), Calls: w.rng.Int64N(4)}
		i.Needs, i.Units = append(i.Needs, n), i.Units+n.Units
	}
	return i
}

// holds renews or ends the holds of a pass on both.
func (w *walker) holds() {
	w.step++
	c := driver.HoldChange{Budget: w.budget, Now: w.caller(), Fence: w.fence()}
	name := "hold ended"
	if w.rng.IntN(2) == 0 {
		c.Lease, name = 1+w.rng.Int64N(hour), "hold renewed"
	}
	if w.rng.IntN(2) == 0 {
		c.Region = "US"
	}
	if holds := change(w, c).Holds; len(holds) > 0 {
		w.counts[name]++
	}
}

// overdraw has the pass of a hold reserve about what that has left, and settle it as more or
// less than it reserved. Then it compares what is left.
func (w *walker) overdraw(limits []limit.Limit) {
	if w.heldNow() == 0 {
		w.send(driver.Batch{Budget: w.budget, Now: w.caller(), Limits: limits, Items: []driver.Item{w.holdItem(limits)}})
	}
	view, err := w.model.Look(w.t.Context(), driver.Look{Budget: w.budget, Now: w.now})
	if err != nil || len(view.Holds) == 0 {
		return
	}
	h := view.Holds[w.rng.IntN(len(view.Holds))]
	left := h.Left[w.rng.IntN(len(h.Left))]
	i := driver.Item{
		ID: fmt.Sprint("over-", w.step), Operation: left.Operation, Units: w.rng.Int64N(left.Units + 5), Lease: hour,
		Fence: h.Fence, Labels: driver.Labels{Job: h.Job, Region: h.Region},
	}
	w.ids = append(w.ids, i)
	w.send(driver.Batch{Budget: w.budget, Now: w.caller(), Limits: limits, Items: []driver.Item{i}})
	drew := w.drew == i.ID && left.Units > 0
	w.drew = ""
	f := driver.Finish{ID: i.ID, Units: w.rng.Int64N(2*i.Units + 3)}
	switch done := w.end(w.caller(), f) == driver.Settled && drew; {
	case !done:
	case i.Units > left.Units && 0 < f.Units && f.Units < i.Units:
		w.counts["overdrawn"]++
	case i.Units < left.Units && f.Units > i.Units:
		w.counts["settled above"]++
	}
	w.look(limits)
}

// countHold counts what became of a hold, and of a call that draws from one.
func (w *walker) countHold(i driver.Item, d driver.Decision) {
	switch {
	case !i.IsHold() && d.Result == driver.Refused && w.heldNow() > 0:
		w.counts["waited beside a hold"]++
	case !i.IsHold() || i.DryRun:
	case d.Replayed:
		w.counts["hold replayed"]++
	case d.Result == driver.Granted:
		w.counts["held"]++
	case d.Result == driver.Refused:
		w.counts["hold refused"]++
	}
}

// heldNow is how much the model's living holds have left, in units and calls together.
func (w *walker) heldNow() (left int64) {
	view, err := w.model.Look(w.t.Context(), driver.Look{Budget: w.budget, Now: w.now})
	if err != nil {
		return 0
	}
	for _, h := range view.Holds {
		for _, n := range h.Left {
			left += n.Units + n.Calls
		}
	}
	return left
}

// countDraw counts a single charge that drew from holds, which had so much left before. If it
// is a reservation, it is finished soon.
func (w *walker) countDraw(items []driver.Item, got []driver.Decision, held int64) {
	if len(items) != 1 || len(got) != 1 || items[0].IsHold() || got[0].Result != driver.Granted || w.heldNow() >= held {
		return
	}
	w.counts["drawn"]++
	if items[0].Lease > minute {
		w.drew = items[0].ID
	}
}
