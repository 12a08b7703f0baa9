package jobs

import "time"

// Between is the ticks in (after, until]: how many, the first, and the newest up to
// most of them, oldest first.
func (s *Schedule) Between(after, until time.Time, most int) (count int, first time.Time, newest []time.Time) {
	for tick := s.Next(after); !tick.IsZero() && !tick.After(until); tick = s.Next(tick) {
		if count == 0 {
			first = tick
		}
		count++
		newest = append(newest, tick)
		newest = newest[max(0, len(newest)-most):]
	}
	return count, first, newest
}
