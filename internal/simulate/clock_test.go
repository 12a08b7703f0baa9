package simulate

import (
	"sync/atomic"
	"time"
)

// clock is the true time: the fake one, and what was slept away beyond it while
// the machine was suspended, which no timer noticed.
type clock struct{ slept atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.slept.Load())).Round(0) }

func (c *clock) micros() int64 { return c.now().UnixMicro() }

// boot is the time since the machine's boot, time asleep included.
func (c *clock) boot() (id string, since int64, err error) { return "boot", c.micros() - booted, nil }

// booted is when the machine booted, in µs.
const booted = 1_700_000_000_000_000

// suspend lets time pass that timers do not see.
func (c *clock) suspend(d time.Duration) { c.slept.Add(int64(d)) }

// until waits for an instant of the true time.
func (c *clock) until(at time.Time) {
	for left := at.Sub(c.now()); left > 0; left = at.Sub(c.now()) {
		<-time.After(left)
	}
}

// begins is how long before the month all begins.
const begins = time.Minute

// begin brings fake time to the month's beginning.
func begin(m month) *clock {
	c := &clock{}
	c.until(m.start.Add(-begins))
	return c
}
