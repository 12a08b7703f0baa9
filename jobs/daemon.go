package jobs

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// DefaultPoll is how often a daemon looks whether somebody has asked something of a
// job.
const DefaultPoll = 2 * time.Second

const (
	// lookAgain is how long the daemon trusts its clock, which may have been
	// stepped. At least as often it looks at all jobs: what other daemons have left
	// behind is found then.
	lookAgain = time.Minute
	// lookPause is how long a store that did not answer is left alone.
	lookPause = time.Second
	// lookers is how many jobs are looked at at once.
	lookers = 16
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
	d := &daemon{Runner: r, ctx: ctx, drain: drain, jobs: map[string]*followed{}, found: map[string]document{}, slots: make(chan struct{}, lookers)}
	d.follow()
	d.working.Go(d.live)
	if startNow {
		for _, j := range r.list() {
			d.working.Go(func() {
				r.manual(ctx, drain, j, false)
				d.consider(j.Name)
			})
		}
	}
	for !stopped(ctx, drain) {
		r.options.Observe.Looked()
		d.come()
		timer := time.NewTimer(d.wait())
		select {
		case <-timer.C:
		case <-r.changed:
			d.follow()
		case <-drain:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	d.working.Wait()
	return context.Cause(ctx)
}

// daemon is a Run under way. Its loop alone uses jobs and what follows it.
type daemon struct {
	*Runner
	ctx     context.Context // of the one call of Run that it is
	drain   <-chan struct{}
	working sync.WaitGroup // passes, and looks at jobs
	slots   chan struct{}  // for looks

	mu      sync.Mutex // guards jobs and found
	jobs    map[string]*followed
	found   map[string]document // what the last sweep found, by job
	looked  time.Time           // when the clock was last looked at
	swept   time.Time           // when all jobs were
	hearing atomic.Bool
	asked   map[string]int64 // what somebody had asked by the last time; only who hears uses it
}

// followed is a job whose schedule is followed.
type followed struct {
	job   *Job
	next  time.Time // its next tick; zero: none comes
	since time.Time // since when it is followed by its schedule
	known time.Time // since when it is followed
	// looking: a look is under way; again: another is to follow it.
	looking, again bool
	// later: a look is to come that nothing but time brings about.
	later bool
}

// follow takes the jobs over as they are configured now.
func (d *daemon) follow() {
	now := d.now()
	d.mu.Lock()
	before := d.jobs
	d.jobs = map[string]*followed{}
	for _, j := range d.list() {
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
		d.log.Info("job", append(fields, "next", formatTick(f.next))...)
	}
	d.mu.Unlock()
	d.looked = now
	d.swept = time.Time{} // what came while no daemon was there is found at once
}

// wait is how long to sleep before the clock is looked at again.
func (d *daemon) wait() time.Duration {
	now := d.now()
	least := min(lookAgain, d.options.Poll)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.jobs {
		if !f.next.IsZero() {
			least = min(least, f.next.Sub(now))
		}
	}
	return max(0, least)
}

// come looks at the jobs whose tick has come, at those that somebody has asked
// something of, and now and then at all.
func (d *daemon) come() {
	now := d.now()
	if now.Before(d.looked) {
		d.log.Warn("the clock went backwards", "by", d.looked.Sub(now))
	}
	d.mu.Lock()
	var due []string
	for name, f := range d.jobs {
		switch {
		case now.Before(d.looked):
			f.next = f.job.Next(now)
		case !f.next.IsZero() && !f.next.After(now):
			due = append(due, name)
			f.next = f.job.Next(now)
		}
	}
	d.mu.Unlock()
	d.looked = now
	for _, name := range due {
		d.consider(name)
	}
	if since := now.Sub(d.swept); since >= min(lookAgain, 2*d.options.Heartbeat) || since < 0 {
		d.swept = now
		d.working.Go(d.sweep)
	}
	if d.hearing.CompareAndSwap(false, true) { // a store that is slow to answer holds no tick up
		d.working.Go(func() {
			defer d.hearing.Store(false)
			d.hear()
		})
	}
}

// hear looks at the jobs that somebody has asked something of since the last time.
func (d *daemon) hear() {
	ctx, cancel := context.WithTimeout(d.ctx, d.options.Poll)
	defer cancel()
	found, err := d.state.Job(ctx, newsName)
	if err != nil {
		d.log.Debug("it is not known whether something was asked of the jobs", "error", err)
		return
	}
	heard, err := readDocument[news](newsName, found)
	if err != nil {
		d.log.Debug("what was asked of the jobs is not known", "error", err)
		return
	}
	for name, at := range heard.Asked {
		if d.asked != nil && d.asked[name] != at {
			d.consider(name)
		}
	}
	d.asked = maps.Clone(heard.Asked)
	if d.asked == nil {
		d.asked = map[string]int64{}
	}
}

// consider looks at a job, unless that is being done: then once more afterwards.
func (d *daemon) consider(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.jobs[name]
	if f == nil || stopped(d.ctx, d.drain) {
		return
	}
	if f.looking {
		f.again = true
		return
	}
	f.looking = true
	d.working.Go(func() {
		for again := true; again; {
			d.slots <- struct{}{}
			d.lookAt(d.read(f))
			<-d.slots
			d.mu.Lock()
			again = f.again && !stopped(d.ctx, d.drain)
			f.again, f.looking = false, again
			d.mu.Unlock()
		}
	})
}

// reconsider looks at a job once more after a while.
func (d *daemon) reconsider(name string, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.jobs[name]
	if f == nil || f.later {
		return
	}
	f.later = true
	d.working.Go(func() {
		if waitFor(d.ctx, d.drain, wait) != nil {
			return
		}
		d.mu.Lock()
		f.later = false
		d.mu.Unlock()
		d.consider(name)
	})
}

// read is a job as it is configured now, and who looks at it.
func (d *daemon) read(f *followed) (*Job, claimant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.job, claimant{hold: d.hold(), since: f.since, known: f.known}
}

// lookAt does what is due for a job, and starts the passes that it claims.
func (d *daemon) lookAt(j *Job, me claimant) {
	me.holder = newHolder()
	slot := ""                          // the holder of the slot for a pass that is caught up
	giveUp := d.now().Add(d.hold() / 2) // then a claim of which it is not known whether it was made falls
	for again := true; again && !stopped(d.ctx, d.drain); {
		ctx, cancel := context.WithTimeout(d.ctx, d.hold())
		done, s, lapsed, err := d.look(ctx, j, me)
		d.tell(j, done.records)
		if err == nil {
			d.accounted(j.Name, s.Until)
		}
		if again = done.claim != nil && err == nil; again {
			d.begin(j, *done.claim, s.NextRegion, slot)
			if done.claim.Kind == CaughtUp {
				slot = "" // the pass has it
			}
			me.holder, me.reap, me.catchUp = newHolder(), nil, slot != ""
			cancel()
			continue
		}
		if err == nil {
			dead, wait := d.dead(j, lapsed)
			if len(dead) > 0 {
				me.reap, err = d.fence(ctx, j, dead)
				again = err == nil
			}
			if wait > 0 {
				d.reconsider(j.Name, wait)
			}
		}
		if err == nil && done.wantsCatchUp && slot == "" {
			slot = me.holder
			me.catchUp, err = d.takeSlot(ctx, catchUpSlot(j.Budget), slot, 1)
			again = again || me.catchUp
		}
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, budget.ErrUnavailable) && d.now().Before(giveUp) && waitFor(d.ctx, d.drain, lookPause) == nil:
			again = true
		case d.ctx.Err() == nil:
			again = false
			d.log.Error("the job could not be looked at; trying again", "job", j.Name, "error", err)
		}
	}
	if slot != "" {
		d.freeSlot(d.ctx, catchUpSlot(j.Budget), slot)
	}
}

// accounted notes up to when (µs) a job's ticks were accounted for: where the state
// loses the document, they are not counted anew from when the daemon began.
func (d *daemon) accounted(name string, until int64) {
	at := time.UnixMicro(until)
	if at.After(d.now()) { // by a clock that was wrong
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.jobs[name]; f != nil && at.After(f.since) {
		f.since = at
	}
}

// begin starts a pass that was claimed.
func (d *daemon) begin(j *Job, claimed claim, next, slot string) {
	if claimed.Kind == Scheduled {
		d.options.Observe.TickStarted(j, d.now().Sub(time.UnixMicro(claimed.Tick)))
	}
	d.working.Go(func() {
		free := func() {}
		if claimed.Kind == CaughtUp {
			free = d.keepSlot(d.ctx, d.log.With("job", j.Name, "budget", j.Budget), catchUpSlot(j.Budget), slot)
		}
		d.pass(d.ctx, d.drain, j, claimed, next, false)
		free()
		if claimed.Kind == CaughtUp { // others of the budget wait for that
			d.nextCatchUp(j)
			return
		}
		d.consider(j.Name)
	})
}

// tell logs what became of ticks that no pass is started for.
func (d *daemon) tell(j *Job, records []Record) {
	for _, record := range records {
		switch record.Outcome {
		case Missed:
			fields := []any{"job", j.Name, "outcome", Missed, "reason", record.Reason, "first", formatTick(record.Tick.Time)}
			ticks := 1
			if record.Until != nil {
				ticks = record.Ticks
				fields = append(fields, "until", formatTick(record.Until.Time))
			}
			d.log.Warn("ticks missed", append(fields, "ticks", ticks)...)
			d.options.Observe.TicksMissed(j, ticks)
		case Lost:
			d.log.Error("pass lost", "job", j.Name, "budget", j.Budget, "tick", formatTick(record.Tick.Time), "reason", record.Reason, "error", record.Error)
			d.options.Observe.PassEnded(j, record.Outcome)
		default:
			d.notStarted(d.ctx, j, record)
		}
	}
}
