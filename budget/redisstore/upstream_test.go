package redisstore_test

import (
	"sync"
	"testing"
	"time"
)

// upstream is what the clients charge for: it logs each call that arrives, and
// counts on its own.
type upstream struct {
	mu       sync.Mutex // guards arrivals
	arrivals []arrival
}

// arrival is one call: its charge was asked for and granted in between.
type arrival struct {
	id          string
	units       int64
	asked, came time.Time
}

func (u *upstream) call(id string, units int64, asked time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arrivals = append(u.arrivals, arrival{id, units, asked, time.Now()})
}

func (u *upstream) calls() []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]arrival(nil), u.arrivals...)
}

// most is the greatest number of units that were certainly charged within one
// window: those of calls that were all asked for and all arrived within it.
func (u *upstream) most(window time.Duration) int64 {
	calls, most := u.calls(), int64(0)
	for _, first := range calls {
		sum := int64(0)
		for _, c := range calls {
			if !c.asked.Before(first.asked) && c.came.Sub(first.asked) < window {
				sum += c.units
			}
		}
		most = max(most, sum)
	}
	return most
}

// The count is the test's own judge, so it is judged too.
func TestUpstreamCounts(t *testing.T) {
	t.Parallel()
	at := time.Now()
	ms := func(n int) time.Time { return at.Add(time.Duration(n) * time.Millisecond) }
	u := &upstream{arrivals: []arrival{
		{"a", 1, ms(0), ms(10)}, {"b", 2, ms(5), ms(99)}, {"c", 4, ms(5), ms(100)}, {"d", 8, ms(90), ms(104)}, {"e", 16, ms(0), ms(300)},
	}}
	if got := u.most(100 * time.Millisecond); got != 14 { // b, c and d
		t.Fatalf("%d units, want 14", got)
	}
}
