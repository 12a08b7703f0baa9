package outage

import "time"

// SetWaited has a function say how long the threads of this process have waited for a processor.
func SetWaited(s *Store, waited func() time.Duration) { s.queued.waited = waited }
