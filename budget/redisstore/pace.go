package redisstore

import (
	"sync/atomic"
	"time"
)

// pace decides how long an attempt waits for its answer before the store sends it again.
type pace struct {
	trip    atomic.Int64 // the shortest time that recent answers took, in ns, or tooSlow's
	near    atomic.Int64 // the shortest time that recent answers, or connecting, took, in ns
	answers atomic.Int64 // how many there were
}

// share is how long an attempt waits: two fifths of its call's time, so that two answers
// may be lost. It is longer if even the fastest answers are slow: otherwise no attempt
// over a slow link would ever succeed.
func (p *pace) share(whole time.Duration, oneServer bool) time.Duration {
	part := whole * 2 / 5
	if oneServer && p.answers.Load() == 0 { // a proxy may have accepted the connection for a server far away
		part = whole * 4 / 5
	}
	return min(whole, max(part, 2*time.Duration(p.trip.Load())))
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

// answered notes how long an answer took. Of two concurrent answers one may be dropped.
func (p *pace) answered(d time.Duration) {
	first := p.answers.Add(1) == 1
	for _, shortest := range []*atomic.Int64{&p.trip, &p.near} {
		least := d
		if before := shortest.Load(); before > 0 && !first {
			least = min(d, time.Duration(2*before))
		}
		shortest.Store(int64(least))
	}
}

// connected notes how long connecting took. The first answer says more, since a proxy may have
// accepted the connection.
func (p *pace) connected(d time.Duration) {
	if p.answers.Load() == 0 {
		p.trip.Store(int64(d))
		p.near.Store(int64(d))
	}
}

// tooSlow notes that no attempt of a call was answered in its share. The first attempt of
// the next call then has all of its time.
func (p *pace) tooSlow(whole time.Duration) { p.trip.Store(int64(whole)) }
