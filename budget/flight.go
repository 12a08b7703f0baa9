package budget

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// flight is a batch of charges on its way to the store.
type flight struct {
	// Until taken, batcher.mu guards these three; then they are the flying goroutine's.
	items []driver.Item // one without an id is an empty seat, whose caller gave up
	ends  []time.Time   // when each caller's own context ends; zero: never
	empty int           // how many seats are empty

	// batcher.mu guards these.
	timer  *time.Timer // wakes the callers if the store ends neither this flight nor the one before
	taken  bool
	landed bool // decided; nothing changes any more

	// woken is closed when the flight has landed or, then late is set before, by the timer.
	woken chan struct{}
	late  bool

	// Those who know that it has landed read these.
	places    []int // of each seat in decisions; nil: the same
	decisions driver.Decisions
	limits    []limit.Limit
	seen      *seen
	err       error
}

// seat is one charge's place in a flight.
type seat struct {
	*flight
	index int
}

// decided is a decision, with the store's clock and the name of the limit that the
// decision names.
type decided struct {
	*driver.Decision
	storeNow int64
	limit    string
	held     int64 // what passes hold of that limit; 0 if unknown
	seen     *seen
}

// add takes a seat, and returns its index. batcher.mu is held.
func (f *flight) add(item *driver.Item, end time.Time) int {
	f.items, f.ends = append(f.items, *item), append(f.ends, end)
	return len(f.items) - 1
}

// takeOff ends the flight's time in the queue: nobody can join or leave it any more. now is the time
// by the budget's clock: the decision's timeout begins here. batcher.mu is held.
func (f *flight) takeOff(now time.Time, timeout time.Duration) {
	f.taken = true
	for i, end := range f.ends {
		left := timeout
		if !end.IsZero() {
			left = min(left, time.Until(end))
		}
		f.items[i].Deadline = now.Add(left)
	}
	if f.empty == 0 {
		return
	}
	f.places = make([]int, len(f.items))
	n := 0
	for i := range f.items {
		if f.items[i].ID != "" {
			f.items[n], f.places[i] = f.items[i], n
			n++
		}
	}
	f.items = f.items[:n]
}

// fly has the store decide the items.
func (f *flight) fly(ctx context.Context, decide func(context.Context, []driver.Item) (driver.Decisions, []limit.Limit, error)) {
	f.decisions, f.limits, f.err = decide(ctx, f.items)
	f.seen = &seen{f.limits, f.decisions.Used}
}

// answer is the decision on a seat, once the flight has landed.
func (f *flight) answer(index int) (decided, error) {
	if f.err != nil {
		return decided{}, f.err
	}
	if f.places != nil {
		index = f.places[index]
	}
	done := decided{Decision: &f.decisions.Items[index], storeNow: f.decisions.Now, seen: f.seen}
	if at := done.Limit; at >= 0 && at < len(f.limits) {
		done.limit = f.limits[at].Name
		if len(f.decisions.Items) == 1 && at < len(f.decisions.Used) { // what is used is of this decision
			done.held = heldBeside(f.limits[at], f.decisions.Used[at], done.Remaining)
		}
	}
	return done, nil
}

// heldBeside returns the units that passes hold in a limit, given its used and
// remaining.
func heldBeside(l limit.Limit, used, remaining int64) int64 {
	if l.Window.Shortest() == 0 {
		return 0
	}
	return max(0, l.Limit-used-remaining)
}
