package jobs

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultPoll is how often a daemon reads whether somebody has asked something of a
// job.
const DefaultPoll = 2 * time.Second

const (
	// sweepEvery is how long the daemon trusts its clock, which may have been
	// stepped. At least as often it sweeps all jobs: what other daemons have left
	// behind is found then.
	sweepEvery = time.Minute
	// retryPause is how long a store that did not answer is left alone.
	retryPause = time.Second
	// maxVisits is how many jobs are visited at once, and how many changed.
	maxVisits = 16
)

// Run follows the schedules until it is told to stop; with startNow each job
// first has a manual pass, which replaces no tick. Several daemons may share a
// state: each tick is one's. When drain is closed no further page is started,
// pages under way have the jobs' grace, the records are written, and Run returns
// nil. When ctx ends first, or meanwhile, requests are cut at once and Run returns
// the context's cause.
//
// A tick up to a minute late is on time; of those that came while no daemon was
// there, each job's catch_up says what becomes. All are recorded.
func (r *Runner) Run(ctx context.Context, drain <-chan struct{}, startNow bool) error {
	soft, cancel := untilDrained(ctx, drain)
	defer cancel()
	d := &daemon{runner: r, ctx: ctx, soft: soft, jobs: map[string]*followed{}, found: map[string]document{}, visiting: make(chan struct{}, maxVisits)}
	d.follow()
	d.working.Go(d.live)
	if startNow {
		for _, j := range r.list() {
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

// daemon is a Run under way. Its loop alone uses clock and swept.
type daemon struct {
	runner *Runner
	// ctx ends when requests are to be cut, soft when nothing new is to be started.
	ctx, soft context.Context
	working   sync.WaitGroup // passes, and visits to jobs
	visiting  chan struct{}  // as many as may be under way

	mu      sync.Mutex // guards jobs and found
	jobs    map[string]*followed
	found   map[string]document // what the last sweep found, by job
	clock   time.Time           // what the clock last said
	swept   time.Time           // when all jobs were swept
	polling atomic.Bool
	asked   map[string]int64 // by the last poll; pollRequests alone uses it
}

// followed is a job whose schedule is followed.
type followed struct {
	job   *Job
	next  time.Time // its next tick; zero: none comes
	since time.Time // since when it is followed by its schedule
	known time.Time // since when it is followed
	// visited: a visit is under way; again: another is to follow it.
	visited, again bool
	// later: a visit is scheduled for later.
	later bool
}

// follow takes the jobs over as they are configured now.
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
		f.job, f.next = j, j.Next(now)
		d.jobs[j.Name] = f
		fields := []any{"job", j.Name, "budget", j.Budget, "schedule", j.Schedule.String(), "timezone", j.Schedule.Zone().String(), "regions", len(j.Regions)}
		if j.Every() > 0 {
			fields = append(fields, "stagger", j.Stagger, "one_every", j.Every())
		}
		d.runner.log.Info("job", append(fields, "next", formatTick(f.next))...)
	}
	d.mu.Unlock()
	d.clock = now
	d.swept = time.Time{} // what came while no daemon was there is found at once
}

// untilTick is how long to wait before the clock is read again.
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

// tick schedules a look at the jobs whose tick has come and at those that somebody has
// asked something of, and now and then a sweep of all.
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
			f.next = f.job.Next(now)
		case !f.next.IsZero() && !f.next.After(now):
			due = append(due, name)
			f.next = f.job.Next(now)
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
	if d.polling.CompareAndSwap(false, true) { // a store that is slow to answer holds no tick up
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
		d.runner.log.Debug("it is not known whether something was asked of the jobs", "error", err)
		return
	}
	facts, err := readDocument[news](newsName, found)
	if err != nil {
		d.runner.log.Debug("what was asked of the jobs is not known", "error", err)
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

// scheduleLook has a job visited, unless that is being done: then once more afterwards.
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
