package jobs

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultPoll is how often a daemon checks whether somebody has asked something of a job.
const DefaultPoll = 2 * time.Second

const (
	// sweepEvery is the longest time between two readings of the clock, which may have
	// been stepped, and between two sweeps of all jobs, which find what other daemons
	// left behind.
	sweepEvery = time.Minute
	// retryPause is the wait before a store that did not answer is asked again.
	retryPause = time.Second
	// maxVisits is how many jobs are visited at once, and how many are changed at once.
	maxVisits = 16
)

// Run follows the schedules until it is drained. With startNow each job first has a
// manual pass, which replaces no tick. Several daemons may share a state; each tick is
// taken by one of them.
//
// When drain is closed, no further page is started, pages under way have the jobs' grace,
// the records are written, and Run returns nil. When ctx ends, requests are cut at once,
// also during a drain, and Run returns the context's cause.
//
// A tick up to a minute late is on time. What happens to ticks that came while no daemon
// was running depends on each job's catch_up. All are recorded.
func (r *Runner) Run(ctx context.Context, drain <-chan struct{}, startNow bool) error {
	soft, cancel := untilClosed(ctx, drain, errDrained)
	defer cancel()
	d := &daemon{runner: r, ctx: ctx, soft: soft, jobs: map[string]*followed{}, found: map[string]document{}, resuming: map[string]chan struct{}{}, visiting: make(chan struct{}, maxVisits)}
	d.follow()
	d.working.Go(d.live)
	if startNow {
		for _, j := range r.list() {
			if j.StartedBy != StartedByDaemon {
				continue
			}
			d.working.Go(func() {
				r.manual(ctx, soft, j, false)
				d.scheduleLook(j.Name)
			})
		}
	}
	for soft.Err() == nil {
		r.options.Observe.Looked()
		d.tick()
		select {
		case <-time.After(d.untilTick()):
		case <-r.changed:
			d.follow()
		case <-soft.Done():
		}
	}
	d.working.Wait()
	return context.Cause(ctx)
}

// daemon is a Run in progress. Its loop alone uses clock, swept and planned.
type daemon struct {
	runner *Runner
	// ctx ends when requests must be cut, soft when nothing new may be started.
	ctx, soft context.Context
	working   sync.WaitGroup // passes, and visits to jobs
	visiting  chan struct{}  // its capacity bounds the visits under way

	mu      sync.Mutex // guards jobs and found
	jobs    map[string]*followed
	found   map[string]document // the documents that the last sweep read, by job
	clock   time.Time           // the last reading of the clock
	swept   time.Time           // when the last sweep began
	planned time.Time           // when the last records of what shares still need were written
	polling atomic.Bool
	asked   map[string]int64 // at the last poll; used by pollRequests alone

	resuming map[string]chan struct{} // guarded by mu: wakes what has the deferred passes of a budget go on
}

// followed is a job whose schedule is followed.
type followed struct {
	job   *Job
	next  time.Time // its next tick; zero: no more
	since time.Time // when the daemon began to follow its current schedule
	known time.Time // when the daemon began to follow the job
	// visited: a visit is under way; again: another follows it.
	visited, again bool
	// later: a visit is scheduled for later.
	later bool
}

// follow takes over the jobs of the current configuration.
func (d *daemon) follow() {
	now := d.runner.now()
	d.mu.Lock()
	before := d.jobs
	d.jobs = map[string]*followed{}
	for _, j := range d.runner.list() {
		f := before[j.Name]
		if f == nil {
			f = &followed{since: now, known: now}
		}
		if f.job != nil && f.job.counts() != j.counts() {
			f.since = now
		}
		f.job, f.next = j, j.wakes(now)
		d.jobs[j.Name] = f
		delete(before, j.Name)
		fields := []any{"job", j.Name, "budget", j.Budget, "schedule", j.Schedule.String(), "timezone", j.Schedule.Zone().String(), "regions", len(j.Regions)}
		if j.Every() > 0 {
			fields = append(fields, "stagger", j.Stagger, "one_every", j.Every())
		}
		d.runner.log.Info("job", append(fields, "next", formatTick(j.Next(now)))...)
	}
	for _, f := range before { // they are no longer configured
		d.working.Go(func() { d.dropRemoved(f.job) })
	}
	d.mu.Unlock()
	d.clock = now
	d.planned = time.Time{}
	d.swept = time.Time{} // so that a sweep finds at once what came while no daemon was running
}

// untilTick is how long to wait before the next tick.
func (d *daemon) untilTick() time.Duration {
	now := d.runner.now()
	least := min(sweepEvery, d.runner.options.Poll)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.jobs {
		if !f.next.IsZero() {
			least = min(least, f.next.Sub(now))
		}
	}
	return max(0, least)
}

// tick schedules a look at the jobs whose tick has come, a poll of requests, and at
// intervals a sweep of all jobs.
func (d *daemon) tick() {
	now := d.runner.now()
	if now.Before(d.clock) {
		d.runner.log.Warn("the clock went backwards", "by", d.clock.Sub(now))
	}
	d.mu.Lock()
	var due []string
	for name, f := range d.jobs {
		switch {
		case now.Before(d.clock):
			f.next = f.job.wakes(now)
		case !f.next.IsZero() && !f.next.After(now):
			due = append(due, name)
			f.next = f.job.wakes(now)
		}
	}
	d.mu.Unlock()
	d.clock = now
	for _, name := range due {
		d.scheduleLook(name)
	}
	if since := now.Sub(d.swept); since >= min(sweepEvery, 2*d.runner.options.Heartbeat) || since < 0 {
		d.swept = now
		d.working.Go(d.sweep)
	}
	if since := now.Sub(d.planned); since >= planEvery || since < 0 {
		d.planned = now
		d.working.Go(func() { d.runner.planAll(d.ctx) })
	}
	if d.polling.CompareAndSwap(false, true) { // in the background: a slow store must not delay a tick
		d.working.Go(func() {
			defer d.polling.Store(false)
			d.pollRequests()
		})
	}
}

// pollRequests schedules a look at the jobs that somebody has asked something of since
// the last poll.
func (d *daemon) pollRequests() {
	ctx, cancel := context.WithTimeout(d.ctx, d.runner.options.Poll)
	defer cancel()
	found, err := d.runner.docs.state.Job(ctx, newsName)
	if err != nil {
		d.runner.log.Debug("requests could not be polled", "error", err)
		return
	}
	facts, err := readDocument[news](newsName, found)
	if err != nil {
		d.runner.log.Debug("the list of requests could not be read", "error", err)
		return
	}
	for name, at := range facts.Asked {
		if d.asked != nil && d.asked[name] != at {
			d.scheduleLook(name)
		}
	}
	d.asked = maps.Clone(facts.Asked)
	if d.asked == nil {
		d.asked = map[string]int64{}
	}
}

// scheduleLook has a job visited; if a visit is under way, once more after it.
func (d *daemon) scheduleLook(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.jobs[name]
	if f == nil || d.soft.Err() != nil {
		return
	}
	if f.visited {
		f.again = true
		return
	}
	f.visited = true
	d.working.Go(func() {
		for again := true; again; {
			d.visiting <- struct{}{}
			d.visit(f)
			<-d.visiting
			d.mu.Lock()
			again = f.again && d.soft.Err() == nil
			f.again, f.visited = false, again
			d.mu.Unlock()
		}
	})
}

// scheduleLookIn has a job visited once more after a while.
func (d *daemon) scheduleLookIn(name string, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.jobs[name]
	if f == nil || f.later {
		return
	}
	f.later = true
	d.working.Go(func() {
		if waitFor(d.soft, wait) != nil {
			return
		}
		d.mu.Lock()
		f.later = false
		d.mu.Unlock()
		d.scheduleLook(name)
	})
}
