package jobs

import (
	"context"
	"slices"
	"time"
)

// restPoll is how often a daemon asks whether a hold has ended early, while a deferred pass
// waits for that.
const restPoll = 250 * time.Millisecond

// resumeDeferred has the deferred passes of a budget go on when their units return. For
// each budget one goroutine waits for the first instant; while nothing is deferred there is
// none. If it is running, it looks again.
func (d *daemon) resumeDeferred(of string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if wake := d.resuming[of]; wake != nil {
		select {
		case wake <- struct{}{}:
		default: // it is about to look
		}
		return
	}
	if d.soft.Err() != nil {
		return
	}
	wake := make(chan struct{}, 1)
	d.resuming[of] = wake
	d.working.Go(func() {
		early, v := false, lastRoom{at: time.Now()}
		for d.soft.Err() == nil {
			seen := d.resumeNext(of, early)
			if !seen.more && d.nothingDeferred(of, wake) {
				return
			}
			if early && !seen.looked { // within a minute it looks early again
				v.room = nil
			}
			early = d.rest(of, seen, &v, wake)
			if seen.went { // what it left is not known
				early, v.room = true, nil
			}
		}
	})
}

// lastRoom is what a budget had left when a daemon last asked.
type lastRoom struct {
	at   time.Time
	set  int64 // when the last of the deferred passes was put off, or deferred
	jobs []*Job
	room []int64
}

// rest waits until the deferred passes of a budget, as they were seen, are to be looked at
// again: until the first instant, or until it is woken, or a hold has ended early that one of
// them waits for. It reports whether to look at all of them before their instants, because
// there is more room: it asks for that each minute, and each half second while one waits for
// what others hold.
func (d *daemon) rest(of string, seen overview, v *lastRoom, wake <-chan struct{}) (early bool) {
	every := sweepEvery
	if seen.held {
		every = 2 * restPoll
	}
	for until := time.Now().Add(seen.wait); d.soft.Err() == nil; {
		wait := min(time.Until(until), time.Until(v.at.Add(every)))
		if seen.held {
			wait = min(wait, restPoll)
		}
		select {
		case <-time.After(wait):
		case <-wake:
			return false
		case <-d.soft.Done():
			return false
		}
		if time.Since(v.at) >= every && d.moreRoom(of, seen, v) {
			return true
		}
		if !time.Now().Before(until) {
			return false
		}
		if !seen.held {
			continue
		}
		ctx, cancel := context.WithTimeout(d.soft, turnHold)
		found, err := d.runner.docs.state.Job(ctx, turnOf(of))
		cancel()
		if err != nil {
			continue // the wait ends in any case
		}
		if facts, err := readDocument[turn](turnOf(of), found); err == nil && facts.HoldsEnded != seen.holdsEnded {
			return false
		}
	}
	return false
}

// moreRoom asks what the budget has left, and reports whether one of the deferred passes may
// fit that did not before: a limit has more left, less is kept for a share, a lock has ended,
// or a pass was refused since. It is one question, however many passes are deferred.
func (d *daemon) moreRoom(of string, seen overview, v *lastRoom) (more bool) {
	ctx, cancel := context.WithTimeout(d.soft, turnHold)
	defer cancel()
	before, spends := *v, d.runner.budget(of)
	if v.at = time.Now(); spends == nil { // a reload has removed it
		return false
	}
	status, err := spends.Status(ctx)
	if err != nil {
		return false
	}
	v.set, v.jobs, v.room = seen.set, seen.jobs, []int64{-int64(len(status.Locks))}
	for _, l := range status.Limits {
		v.room = append(v.room, l.Remaining)
		for _, share := range l.Shares {
			v.room = append(v.room, -share.Kept)
		}
	}
	more = v.set != before.set || !slices.Equal(v.jobs, before.jobs) || len(v.room) != len(before.room)
	for i := 0; i < len(v.room) && !more; i++ {
		more = v.room[i] > before.room[i]
	}
	return more
}

// nothingDeferred ends what watches a budget, unless it was woken meanwhile.
func (d *daemon) nothingDeferred(of string, wake chan struct{}) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(wake) > 0 {
		return false
	}
	delete(d.resuming, of)
	return true
}
