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

// mostTries bounds how often a call asks a store that has not answered in time, where that says
// nothing about the store.
const mostTries = 8

// insist asks the store within the context. If the time was over, but the store has answered
// meanwhile, as a distant one does that a new process has to get to know, or if this process had to
// wait for a processor, it asks again with the store's timeout: only what the store takes counts.
// All tries have the same ids, and none charges past its end.
// alive reports that the store has answered in one of them.
func (s *Store) insist(ctx context.Context, ask func(context.Context) error) (last context.Context, alive bool, err error) {
	far, ok := s.inner.(distant)
	var had int64
	if ok {
		_, had = far.Distance()
	}
	unsure := false
	for try := 1; ; try++ {
		waited := s.queued.before()
		err = ask(ctx)
		if until, bounded := ctx.Deadline(); bounded && err != nil && !time.Now().Before(until) {
			<-ctx.Done() // a connection that takes its deadline from the context may report it a moment before
		}
		if !ok {
			return ctx, false, err
		}
		near, answers := far.Distance()
		answered := answers > had
		alive, had = alive || answered, answers
		if unsure && errors.Is(err, driver.ErrNotCharged) { // by this try, but perhaps by an earlier one
			err = fmt.Errorf("%w: %s", driver.ErrUnavailable, err)
		}
		if !unreached(ctx, err) || ctx.Err() == nil || try == mostTries || !answered && !s.queued.since(waited) {
			return ctx, alive, err
		}
		unsure = unsure || !errors.Is(err, driver.ErrNotCharged)
		if try == 1 {
			s.insisting.Add(1)
			defer s.insisting.Add(-1)
		}
		again, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.o.Timeout+mostTries*near, driver.ErrUnavailable)
		defer cancel()
		ctx = again
	}
}

// Insists reports whether a call is asking again past its timeout.
func (s *Store) Insists() bool { return s.insisting.Load() > 0 }

// queueing is how long the threads of this process have waited for a processor, as Linux tells it.
type queueing struct {
	waited func() time.Duration // what all threads have waited, ever; 0 where the system does not tell

	mu   sync.Mutex // guards all below
	last sample
}

// sample is what all threads have waited, and when that was read.
type sample struct {
	waited time.Duration
	at     time.Time
}

// sampleEach is the least time between two readings before calls, since each takes 0.1 ms.
const sampleEach = 100 * time.Millisecond

// before returns a sample that is not much older than now.
func (q *queueing) before() sample {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.last.at) >= sampleEach {
		q.last = sample{q.waited(), time.Now()}
	}
	return q.last
}

// since reports whether the threads have waited for at least a quarter of the time since a sample.
func (q *queueing) since(before sample) bool {
	return q.waited()-before.waited >= time.Since(before.at)/4
}

func waitedOnLinux() (all time.Duration) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat") // the pattern is correct
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			ns, _ := strconv.ParseInt(fields[1], 10, 64)
			all += time.Duration(ns)
		}
	}
	return all
}
