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

	// WithTimeout returns a context in which the store takes as long as timeout, instead of its own.
	WithTimeout(ctx context.Context, timeout time.Duration) context.Context
}

// These bound how long a call asks a store again and again that does not answer in time, in timeouts
// of the store: all its tries, and besides those in which the process waited for a processor.
const (
	mostTimeouts = 8
	mostStarved  = 32
)

// Patience is how long a call may take in all; 0: no longer than its store's timeout, as the store
// is never asked again. A caller bounds its calls by it, and this package each try by the store's timeout.
func (s *Store) Patience() time.Duration {
	if s.far != nil {
		return (mostTimeouts + mostStarved) * s.o.Timeout
	}
	return 0
}

// These are the errors of a try that ran out of time although the store has answered: the script
// charged nothing any more, or an answer before it was lost.
var (
	errLate    = fmt.Errorf("%w: it handled the call after the deadline; %w", driver.ErrUnavailable, driver.ErrNotCharged)
	errUnheard = fmt.Errorf("%w: it handled the call after the deadline, and an earlier answer was lost", driver.ErrUnavailable)
)

// usualTrips is how many answers of a distant store a call waits for.
const usualTrips = 3

// insist asks the store, and passes the outcome to the breaker. If the store's timeout passes, but the
// store has answered meanwhile, as a distant one does that a new process has to get to know, or if this
// process had to wait for a processor, insist asks again, each time with twice the time, until
// mostTimeouts have passed, in which tries of a process that waited do not count: only what the store
// takes counts. All tries have the same ids, and each charges within its own time only. They end with
// the caller's context.
func (s *Store) insist(ctx context.Context, name string, ask func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); s.far == nil || !bounded {
		return s.once(ctx, name, ask)
	}
	timeout, unsure, last := s.o.Timeout, false, time.Now().Add(s.Patience())
	for end := time.Now().Add(mostTimeouts * timeout); ; timeout *= 2 {
		near, _ := s.far.Distance()
		began, heard := time.Now(), s.heard()
		waited, since := s.queued.before()
		until := began.Add(timeout + usualTrips*near)
		if end.Before(until) {
			until = end
		}
		one, cancel := context.WithDeadlineCause(ctx, until, driver.ErrUnavailable)
		if timeout > s.o.Timeout {
			one = s.far.WithTimeout(one, timeout)
		}
		err := whenOver(one, ask(one))
		answered, starved, busy := errors.Is(err, errLate) || errors.Is(err, errUnheard), false, false
		late := answered || unreached(one, err) && (one.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded))
		if unsure && errors.Is(err, driver.ErrNotCharged) { // by this try, but perhaps by an earlier one
			err = fmt.Errorf("%w: %s", driver.ErrUnavailable, err.Error())
		}
		if late {
			answered = answered || heard()
			starved, busy = s.queued.since(waited, since)
		}
		if starved {
			if end = end.Add(time.Since(began)); end.After(last) {
				end = last
			}
		}
		if !answered && !busy || ctx.Err() != nil || time.Until(end) < s.o.Timeout/2 {
			s.answered(one, name, err, time.Since(began), answered && busy)
			cancel()
			return err
		}
		cancel()
		unsure = unsure || !errors.Is(err, driver.ErrNotCharged)
	}
}

// heard returns what reports whether the store has answered since, or a connection to a far one was made.
func (s *Store) heard() func() bool {
	if s.far == nil || s.o.PerBudget { // another server may have answered
		return func() bool { return false }
	}
	near, had := s.far.Distance()
	return func() bool {
		connected, answers := s.far.Distance()
		return answers > had || near == 0 && connected > s.o.Timeout/mostTimeouts
	}
}

// once asks the store one time, and passes the outcome to the breaker, which does not open for a call
// that failed after an answer: it may have had too many parts.
func (s *Store) once(ctx context.Context, name string, ask func(context.Context) error) error {
	began, heard := time.Now(), s.heard()
	err := whenOver(ctx, ask(ctx))
	s.answered(ctx, name, err, time.Since(began), heard())
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

// queueing is how long the threads of this process have run and waited for a processor, and how long any
// of the machine's has waited, as Linux tells it.
type queueing struct {
	times func() waits

	mu     sync.Mutex // guards all below
	last   waits
	lastAt time.Time
}

// waits are times since the process or the machine began; 0 where the system does not tell them.
type waits struct {
	ran, waited time.Duration // of all threads of this process
	pressed     time.Duration // while a process of the machine waited
}

// sampleEach is the least time between two readings before calls, since each takes 0.1 ms.
const sampleEach = 100 * time.Millisecond

// before returns what was read not much earlier than now, and when.
func (q *queueing) before() (waits, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.lastAt) >= sampleEach {
		q.last, q.lastAt = q.times(), time.Now()
	}
	return q.last, q.lastAt
}

// since reports whether the threads have waited for at least a quarter of the time since then, and of
// the time for which they had work: many threads that each wait a little are not starved. busy is true
// then, and if somebody waited for half of the time, as a server on this machine may have.
func (q *queueing) since(before waits, at time.Time) (starved, busy bool) {
	now, took := q.times(), time.Since(at)
	ran, waited := now.ran-before.ran, now.waited-before.waited
	starved = waited > 0 && waited >= max(took, ran+waited)/4
	return starved, starved || now.pressed-before.pressed >= took/2
}

// timesOnLinux reads what a kernel tells that counts how long threads wait.
func timesOnLinux() (w waits) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat") // the pattern is correct
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			for i, sum := range []*time.Duration{&w.ran, &w.waited} {
				ns, _ := strconv.ParseInt(fields[i], 10, 64)
				*sum += time.Duration(ns)
			}
		}
	}
	text, _ := os.ReadFile("/proc/pressure/cpu") // since Linux 4.20, if switched on
	if _, total, ok := strings.Cut(string(text), "total="); ok {
		some, _, _ := strings.Cut(total, "\n")
		us, _ := strconv.ParseInt(some, 10, 64)
		w.pressed = time.Duration(us) * time.Microsecond
	}
	return w
}
