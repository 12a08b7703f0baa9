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
	items  []driver.Item // one without an id is an empty seat, whose caller gave up
	untils []time.Time   // when each caller gives up, by time.Now
	empty  int           // how many seats are empty

	// batcher.mu guards these.
	first  time.Time // the earliest of untils
	timer  *time.Timer
	taken  bool
	landed bool // decided; nothing changes any more

	// woken is closed when the flight has landed, or, by the timer, when the first of its
	// callers gives up. So a flight has one timer, not each of its callers. In the latter
	// case answered was set before, and is closed when the flight has landed.
	woken    chan struct{}
	answered chan struct{}

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
	until time.Time
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
func (f *flight) add(item *driver.Item, until time.Time) int {
	if until.Before(f.first) {
		f.first = until
		if f.answered == nil {
			f.timer.Reset(time.Until(until) + answerTime)
		}
	}
	f.items, f.untils = append(f.items, *item), append(f.untils, until)
	return len(f.items) - 1
}

// takeOff ends the flight's time in the queue: nobody can join or leave it any more.
// batcher.mu is held.
func (f *flight) takeOff() {
	f.taken = true
	if f.empty == 0 {
		return
	}
	f.places = make([]int, len(f.items))
	n := 0
	for i := range f.items {
		if f.items[i].ID != "" {
			f.items[n], f.untils[n], f.places[i] = f.items[i], f.untils[i], n
			n++
		}
	}
	f.items, f.untils = f.items[:n], f.untils[:n]
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
