package outage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// distant is a store whose distance is measured: what a call waits for it says something about the
// store only beyond that.
type distant interface {
	Distance() (near time.Duration, answers int64)
}

// mostTimeouts bounds how long a call asks a store again and again that does not answer in time, in
// timeouts of the store.
const mostTimeouts = 8

// Patience is how long a call may take in all; 0: no longer than its store's timeout, as the store
// is never asked again. A caller bounds its calls by it, and this package each try by the store's timeout.
func (s *Store) Patience() time.Duration {
	if _, ok := s.inner.(distant); ok {
		return mostTimeouts * s.o.Timeout
	}
	return 0
}

// usualTrips is how many answers of a distant store a call waits for.
const usualTrips = 3

// insist asks the store, and passes the outcome to the breaker. If the store's timeout passes, but the
// store has answered meanwhile, as a distant one does that a new process has to get to know, or if this
// process had to wait for a processor, insist asks again, until mostTimeouts have passed: only what the
// store takes counts. All tries have the same ids, and each charges within its own time only. They end
// with the caller's context.
func (s *Store) insist(ctx context.Context, name string, ask func(context.Context) error) error {
	far, ok := s.inner.(distant)
	if _, bounded := ctx.Deadline(); !ok || !bounded {
		return s.once(ctx, name, ask)
	}
	end, unsure := time.Now().Add(s.Patience()), false
	for {
		near, had := far.Distance()
		began, waited := time.Now(), s.queued.before()
		until := began.Add(s.o.Timeout + usualTrips*near)
		if end.Before(until) {
			until = end
		}
		one, cancel := context.WithDeadlineCause(ctx, until, driver.ErrUnavailable)
		err := whenOver(one, ask(one))
		if unsure && errors.Is(err, driver.ErrNotCharged) { // by this try, but perhaps by an earlier one
			err = fmt.Errorf("%w: %s", driver.ErrUnavailable, err.Error())
		}
		late := unreached(one, err) && (one.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded))
		answered, starved := false, false
		if late {
			_, answers := far.Distance()
			answered = answers > had && !s.o.PerBudget // else another server may have answered
			starved = s.queued.since(waited)
		}
		if !answered && !starved || ctx.Err() != nil || time.Until(end) < s.o.Timeout/2 {
			s.answered(one, name, err, time.Since(began), answered && starved)
			cancel()
			return err
		}
		cancel()
		unsure = unsure || !errors.Is(err, driver.ErrNotCharged)
	}
}

// once asks the store one time, and passes the outcome to the breaker.
func (s *Store) once(ctx context.Context, name string, ask func(context.Context) error) error {
	began := time.Now()
	err := whenOver(ctx, ask(ctx))
	s.answered(ctx, name, err, time.Since(began), false)
	return err
}

// whenOver returns the error of a try once its context has ended, if its deadline has passed: a
// connection that takes its deadline from the context may report it a moment before.
func whenOver(ctx context.Context, err error) error {
	if until, bounded := ctx.Deadline(); bounded && err != nil && !time.Now().Before(until) {
		<-ctx.Done()
	}
	return err
}

// tryClock returns the caller's clock for each try of a call that began at now, in µs: it has gone on for
// those after the first.
func tryClock(now int64) func() int64 {
	began, again := time.Now(), false
	return func() int64 {
		if again {
			return now + time.Since(began).Microseconds()
		}
		again = true
		return now
	}
}

// queueing is how long the threads of this process have run and waited for a processor, as Linux tells it.
type queueing struct {
	times func() (ran, waited time.Duration) // of all threads, ever; 0 where the system does not tell

	mu   sync.Mutex // guards all below
	last sample
}

// sample is what all threads have run and waited, and when that was read.
type sample struct {
	ran, waited time.Duration
	at          time.Time
}

// sampleEach is the least time between two readings before calls, since each takes 0.1 ms.
const sampleEach = 100 * time.Millisecond

// before returns a sample that is not much older than now.
func (q *queueing) before() sample {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.last.at) >= sampleEach {
		ran, waited := q.times()
		q.last = sample{ran, waited, time.Now()}
	}
	return q.last
}

// since reports whether the threads have waited for at least a quarter of the time since a sample, and
// of the time for which they had work: many threads that each wait a little are not starved.
func (q *queueing) since(before sample) bool {
	ran, waited := q.times()
	ran, waited = ran-before.ran, waited-before.waited
	return waited > 0 && waited >= max(time.Since(before.at), ran+waited)/4
}

func timesOnLinux() (ran, waited time.Duration) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat") // the pattern is correct
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			for i, sum := range []*time.Duration{&ran, &waited} {
				ns, _ := strconv.ParseInt(fields[i], 10, 64)
				*sum += time.Duration(ns)
			}
		}
	}
	return ran, waited
}
