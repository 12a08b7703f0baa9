package redisstore

import (
	"sync/atomic"
	"time"
)

// pace tells how long an attempt waits for its answer before it is sent again.
type pace struct{ trip atomic.Int64 } // the shortest that answers take lately, in ns

// An attempt waits two fifths of the time that its call has, so that two answers
// may be lost; longer where even the quickest answers take long, or a slow link
// would be asked in vain again and again.
func (p *pace) share(whole time.Duration) time.Duration {
	return min(whole, max(whole*2/5, 2*time.Duration(p.trip.Load())))
}

// shareEnd is the end of an attempt that begins now: a last part too short to
// be of use is added to it.
func shareEnd(now time.Time, share time.Duration, end time.Time) time.Time {
	until := now.Add(share)
	if end.Sub(until) < share/4 {
		return end
	}
	return until
}

// took notes an answer. Of two at once one may be forgotten.
func (p *pace) took(d time.Duration) {
	if trip := p.trip.Load(); trip > 0 {
		d = min(d, time.Duration(2*trip))
	}
	p.trip.Store(int64(d))
}

// tooSlow notes that no attempt of a call was answered in its share: the next
// call gives its first one all the time it has.
func (p *pace) tooSlow(whole time.Duration) { p.trip.Store(int64(whole)) }
