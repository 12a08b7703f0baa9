package redisstore

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/lua"
)

// offset is how far a server's clock is ahead of the local one, in µs. The server reads
// its clock before the answer arrives, so a measured offset is never too large, and the
// largest of the last few seconds is the best. The store keeps one for each budget and
// job, since they are on shards whose clocks differ.
type offset struct {
	known         bool
	best, earlier int64
	since         time.Time
}

// offsetSpan bounds how long a measured offset counts: it is dropped after one to two
// spans, because somebody may set the clocks.
const offsetSpan = 5 * time.Second

// learn takes in a server's clock from an answer that took at most slowest to arrive. If
// the offset is smaller than any delay explains, the clock was set or is another server's,
// and learn starts over.
func (o *offset) learn(at int64, now time.Time, slowest time.Duration) {
	seen := at - now.UnixMicro()
	switch age := now.Sub(o.since); {
	case !o.known || age > 2*offsetSpan || seen < o.value()-2*slowest.Microseconds():
		*o = offset{known: true, best: seen, earlier: seen, since: now}
	case age > offsetSpan:
		o.earlier, o.best, o.since = o.best, seen, now
	default:
		o.best = max(o.best, seen)
	}
}

func (o *offset) value() int64 { return max(o.best, o.earlier) }

// learnAt notes the clock of a budget's or a job's server.
func (s *Store) learnAt(name string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock(name).learn(at, time.Now(), s.timeout)
}

// learnAnew replaces what is known of a clock by an answer that contradicts it.
func (s *Store) learnAnew(name string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.clock(name)
	*o = offset{}
	o.learn(at, time.Now(), s.timeout)
}

// clockOffset returns the best offset of a budget's server, and whether one is known.
func (s *Store) clockOffset(name string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.clock(name)
	return o.value(), o.known
}

// clock returns the offset of a budget's or a job's server; s.mu is held.
func (s *Store) clock(name string) *offset { return remembered(s.clocks, name, maxClocks) }

// needClock asks for the clock of a budget's server unless an answer has shown it.
func (s *Store) needClock(ctx context.Context, name string) error {
	if _, known := s.clockOffset(name); known {
		return nil
	}
	at, err := s.runForClock(ctx, s.scripts.Probe, "ask the clock for "+name, []string{s.key(name, "m")})
	if err == nil {
		s.learnAt(name, at)
	}
	return err
}

// runForClock runs a script whose reply is the clock.
func (s *Store) runForClock(ctx context.Context, sc lua.Script, doing string, keys []string) (int64, error) {
	reply, err := s.run(ctx, sc, keys).Result()
	if err != nil {
		return 0, s.fault(doing, err)
	}
	if !clocked(reply) {
		return 0, s.strange(doing, reply)
	}
	return number(reply), nil
}

// earlierClock is the clock from which callers compute waits. It follows the same rule as
// moment in the scripts, without the clamp to the last instant seen.
func earlierClock(server, caller int64) int64 {
	if server-caller > driver.ClockTolerance {
		return server
	}
	return min(server, caller)
}

// giveUp is the local instant at which to give up a call: the earlier of the context's
// deadline, which [Store.begin] has set, and the call's own. That one is by the caller's
// clock, which showed callerNow at the local instant began.
func giveUp(ctx context.Context, deadline time.Time, callerNow int64, began time.Time) time.Time {
	until, _ := ctx.Deadline()
	if deadline.IsZero() {
		return until
	}
	return earlier(until, began.Add(time.Duration(deadline.UnixMicro()-callerNow)*time.Microsecond))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// serverTimes returns a function that converts local instants to the clock of a budget's
// server, at least 1. Scripts refuse to charge past these instants, so a call that was given
// up is not charged later. One script run must use one such function: other calls may learn
// a new offset meanwhile, and with two offsets an item could seem late and be charged after
// those behind it. If the clock is not known the result is 1: the refusal shows the clock.
func (s *Store) serverTimes(name string) func(at time.Time) int64 {
	offset, known := s.clockOffset(name)
	return func(at time.Time) int64 {
		if !known {
			return 1
		}
		return max(1, at.UnixMicro()+offset)
	}
}
