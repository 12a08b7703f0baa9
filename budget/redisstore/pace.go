package redisstore

import (
	"sync/atomic"
	"time"
)

// pace decides how long an attempt waits for its answer before the store sends it again.
type pace struct{ trip atomic.Int64 } // the shortest time that recent answers took, in ns

// share is how long an attempt waits: two fifths of its call's time, so that two answers
// may be lost. It is longer if even the fastest answers are slow: otherwise no attempt
// over a slow link would ever succeed.
func (p *pace) share(whole time.Duration) time.Duration {
	return min(whole, max(whole*2/5, 2*time.Duration(p.trip.Load())))
}

// shareEnd is the end of an attempt that begins now. It extends to the call's end if the
// time after the attempt would be too short for another.
func shareEnd(now time.Time, share time.Duration, end time.Time) time.Time {
	until := now.Add(share)
	if end.Sub(until) < share/4 {
		return end
	}
	return until
}

// took notes how long an answer took. Of two concurrent answers one may be dropped.
func (p *pace) took(d time.Duration) {
	if trip := p.trip.Load(); trip > 0 {
		d = min(d, time.Duration(2*trip))
	}
	p.trip.Store(int64(d))
}

// tooSlow notes that no attempt of a call was answered in its share. The first attempt of
// the next call then has all of its time.
func (p *pace) tooSlow(whole time.Duration) { p.trip.Store(int64(whole)) }
