package outage

import "time"

// SetTimes has a function say how long the threads of this process have run, and waited for a processor,
// and how long any thread of the machine has.
func SetTimes(s *Store, times func() (ran, waited, pressed time.Duration)) {
	s.queued.times = func() (w waits) {
		w.ran, w.waited, w.pressed = times()
		return w
	}
}
