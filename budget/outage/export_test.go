package outage

import "time"

// SetTimes has a function say how long the threads of this process have run, and waited for a processor.
func SetTimes(s *Store, times func() (ran, waited time.Duration)) { s.queued.times = times }
