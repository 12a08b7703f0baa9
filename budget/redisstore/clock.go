package redisstore

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/lua"
)

// offset tells how far a server's clock stands ahead of the local one, in µs.
// An answer's clock was read before the answer came, so what it shows is never
// too much; the most of the last few seconds is the best of them. It is kept
// for each budget and job, since they lie on shards whose clocks differ.
type offset struct {
	known         bool
	best, earlier int64
	since         time.Time
}

// offsetSpan is after how long what an answer showed is forgotten, once or
// twice over: the clocks may be set.
const offsetSpan = 5 * time.Second

// learn takes in a server's clock as an answer told it, which took at most
// slowest to come. One that shows less than any delay explains is another
// server's, or was set.
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

// learnAnew takes an answer's clock for the only one known: it contradicted
// what was.
func (s *Store) learnAnew(name string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.clock(name)
	*o = offset{}
	o.learn(at, time.Now(), s.timeout)
}

// clockOffset is the best known offset of a budget's server, and whether one is
// known.
func (s *Store) clockOffset(name string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.clock(name)
	return o.value(), o.known
}

// clock is what is known of the clock of a budget's or a job's server. s.mu is
// held.
func (s *Store) clock(name string) *offset { return remembered(s.clocks, name, maxClocks) }

// needClock asks for the clock of a budget's server when no answer has told it.
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

// runForClock runs a script that answers with the clock.
func (s *Store) runForClock(ctx context.Context, sc lua.Script, doing string, keys []string) (int64, error) {
	reply, err := s.run(ctx, sc, keys).Result()
	if err != nil {
		return 0, s.fault(doing, err)
	}
	if !count(reply) {
		return 0, s.strange(doing, reply)
	}
	return number(reply), nil
}

// earlierClock is the clock that waits are told by, not clamped, as moment in the
// scripts has it.
func earlierClock(server, caller int64) int64 {
	if server-caller > driver.ClockTolerance {
		return server
	}
	return min(server, caller)
}

// giveUp is the local instant at which a call is given up: the earlier of its
// own deadline, on the caller's clock that showed callerNow at the local instant
// began, and the context's, which [Store.begin] has set.
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

// serverTimes puts local instants on the clock of a budget's server, at least 1:
// scripts refuse past them, so that a call that was given up is not charged
// later. All that goes into one script run takes one of it: other calls learn the
// clock meanwhile, and of a batch by two ideas of it items would seem late, and be
// charged after those behind them. Where the clock was forgotten it is 1: the
// refusal tells the clock.
func (s *Store) serverTimes(name string) func(at time.Time) int64 {
	offset, known := s.clockOffset(name)
	return func(at time.Time) int64 {
		if !known {
			return 1
		}
		return max(1, at.UnixMicro()+offset)
	}
}
