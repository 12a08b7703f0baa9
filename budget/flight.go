package budget

import (
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// flight is a batch on its way to the store.
type flight[I, A any] struct {
	// Until taken, batcher.mu guards these three; then they are the flying goroutine's.
	items []I
	ends  []ending
	empty int // how many seats are empty

	// batcher.mu guards these.
	timer   *time.Timer // wakes the callers at end if the store ends neither this flight nor the one before
	end     time.Time
	taken   bool
	yielded bool // the time is over, and the rest of the process has run since
	landed  bool // decided; nothing changes any more

	// woken is closed when the flight has landed or, then late is set before, by the timer.
	woken chan struct{}
	late  bool

	// Those who know that it has landed read these.
	places  []int // of each seat in the answers; nil: the same
	answers A
	err     error
}

// ending is when a caller's own context ends, zero: never; and whether the caller gave up.
type ending struct {
	at   time.Time
	gone bool
}

// seat is one caller's place in a flight.
type seat[I, A any] struct {
	*flight[I, A]
	index int
}

// chargeSeat is one charge's place in a flight.
type chargeSeat = seat[driver.Item, verdicts]

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
func (f *flight[I, A]) add(item *I, end time.Time) int {
	f.items, f.ends = append(f.items, *item), append(f.ends, ending{at: end})
	return len(f.items) - 1
}

// takeOff ends the flight's time in the queue: nobody can join or leave it any more. now is the time
// by the budget's clock: the timeout begins here. batcher.mu is held.
func (f *flight[I, A]) takeOff(now time.Time, timeout time.Duration, due func(*I, time.Time)) {
	f.taken = true
	for i, end := range f.ends {
		left := timeout
		if !end.at.IsZero() {
			left = min(left, time.Until(end.at))
		}
		due(&f.items[i], now.Add(left))
	}
	if f.empty == 0 {
		return
	}
	f.places = make([]int, len(f.items))
	n := 0
	for i, end := range f.ends {
		if !end.gone {
			f.items[n], f.places[i] = f.items[i], n
			n++
		}
	}
	f.items = f.items[:n]
}

// answer is the answer to a seat, at its index, once the flight has landed.
func (f *flight[I, A]) answer(index int) (answers A, at int, err error) {
	if f.err != nil {
		return answers, 0, f.err
	}
	if f.places != nil {
		index = f.places[index]
	}
	return f.answers, index, nil
}

// verdicts are the answers to a flight of charges.
type verdicts struct {
	driver.Decisions
	limits []limit.Limit // to which they refer
	seen   *seen
}

// decidedBy is the decision at an index.
func decidedBy(v verdicts, index int, err error) (decided, error) {
	if err != nil {
		return decided{}, err
	}
	done := decided{Decision: &v.Items[index], storeNow: v.Now, seen: v.seen}
	if at := done.Limit; at >= 0 && at < len(v.limits) {
		done.limit = v.limits[at].Name
		if len(v.Items) == 1 && at < len(v.Used) { // what is used is of this decision
			done.held = heldBeside(v.limits[at], v.Used[at], done.Remaining)
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
