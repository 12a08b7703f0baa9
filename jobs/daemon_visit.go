package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// visit is a visit of the daemon to a job: it takes step after step until nothing more is
// due. If the store does not answer, the visit begins again.
type visit struct {
	d   *daemon
	job *Job
	me  claimant
	// slot is the holder of the slot for a caught-up pass; empty: no slot is held.
	slot string
	// giveUp is when retries end: by then a claim with unknown outcome has expired or will soon.
	giveUp time.Time

	done   stepped // the result of the last decision
	state  *state
	lapsed []claim
	again  bool // another decision may have more to do
}

// visitStep is one step of a visit; it returns the next step, nil for the last.
type visitStep func(ctx context.Context) (visitStep, error)

// visit does what is due for a job and starts the passes that it claims.
func (d *daemon) visit(f *followed) {
	hold := d.runner.docs.hold()
	v := &visit{d: d, giveUp: d.runner.now().Add(hold / 2)}
	d.mu.Lock()
	v.job, v.me = f.job, claimant{holder: newHolder(), hold: hold, since: f.since, known: f.known}
	d.mu.Unlock()
	for decide := true; decide && d.soft.Err() == nil; {
		ctx, cancel := context.WithTimeout(d.ctx, hold)
		step, err := v.decide(ctx)
		for step != nil && err == nil {
			step, err = step(ctx)
		}
		cancel()
		decide = v.again
		if err != nil {
			decide = v.recover(err)
		}
	}
	if v.slot != "" {
		d.runner.docs.freeSlot(d.ctx, catchUpSlot(v.job.Budget), v.slot)
	}
}

// decide takes one step in the job's document.
func (v *visit) decide(ctx context.Context) (next visitStep, err error) {
	v.again = false
	v.done, v.state, v.lapsed, err = v.d.runner.takeStep(ctx, v.job, v.me)
	if err != nil {
		return nil, err
	}
	v.d.accounted(v.job.Name, v.state.Until)
	if len(v.state.Deferred) > 0 {
		v.d.resumeDeferred(v.job.Budget)
	}
	if v.done.claim != nil {
		return v.start, nil
	}
	return v.fence, nil
}

// start starts the claimed pass.
func (v *visit) start(context.Context) (visitStep, error) {
	v.d.begin(v.job, *v.done.claim, v.state.NextRegion, v.slot)
	if v.done.claim.Kind == CaughtUp {
		v.slot = "" // the pass has it
	}
	v.me.holder, v.me.reap, v.me.catchUp = newHolder(), nil, v.slot != ""
	v.again = true
	return nil, nil
}

// fence shuts dead passes out of their budgets, so that the next decision may record them
// as lost. If other passes may be dead, it schedules a later visit.
func (v *visit) fence(ctx context.Context) (next visitStep, err error) {
	dead, wait := v.d.runner.dead(v.job, v.lapsed)
	if len(dead) > 0 {
		v.me.reap, err = v.d.runner.fence(ctx, v.job, dead)
		v.again = err == nil
	}
	if wait > 0 {
		v.d.scheduleLookIn(v.job.Name, wait)
	}
	return v.takeSlot, err
}

// takeSlot takes the slot for a caught-up pass, if a tick waits for one.
func (v *visit) takeSlot(ctx context.Context) (next visitStep, err error) {
	if v.done.wantsCatchUp && v.slot == "" {
		v.slot = v.me.holder
		v.me.catchUp, err = v.d.runner.docs.takeSlot(ctx, catchUpSlot(v.job.Budget), v.slot, 1)
		v.again = v.again || v.me.catchUp
	}
	return nil, err
}

// recover waits before the visit begins again after an error; false when the error ends
// the visit.
func (v *visit) recover(err error) (again bool) {
	d := v.d
	if errors.Is(err, budget.ErrUnavailable) && d.runner.now().Before(v.giveUp) && waitFor(d.soft, retryPause) == nil {
		return true
	}
	if d.ctx.Err() == nil {
		d.runner.log.Error("the job could not be read or changed; trying again", "job", v.job.Name, "error", err)
	}
	return false
}

// takeStep takes one step for a job and records its results.
func (r *Runner) takeStep(ctx context.Context, j *Job, me claimant) (done stepped, s *state, lapsed []claim, err error) {
	done, err = r.step(ctx, j, func(found *state, at clocks) (stepped, error) {
		if err := at.check(); err != nil {
			return stepped{}, err
		}
		s = found
		took := j.step(s, at, me)
		lapsed = s.lapsed(at, me.hold)
		return took, nil
	})
	if err == nil {
		r.endCancelled(s.Active)
	}
	return done, s, lapsed, err
}

// kept converts a step's records for the history, which keeps them by their newest ticks.
func (d stepped) kept() []driver.JobRecord {
	var list []driver.JobRecord
	for i, record := range d.records {
		newest := record.Tick
		if record.Until != nil {
			newest = *record.Until
		}
		list = append(list, driver.JobRecord{At: newest.UnixMicro(), ID: d.ids[i], Text: record.json()})
	}
	return list
}

// accounted notes up to when (µs) a job's ticks are accounted for. If the state loses the
// document, the ticks are then not counted again from when the daemon began.
func (d *daemon) accounted(name string, until int64) {
	at := time.UnixMicro(until)
	if at.After(d.runner.now()) { // written by a machine with a wrong clock
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.jobs[name]; f != nil && at.After(f.since) {
		f.since = at
	}
}

// begin starts a claimed pass. The channel is closed once the pass has spent something, or
// is over.
func (d *daemon) begin(j *Job, claimed claim, next, slot string) <-chan struct{} {
	if claimed.Kind == Scheduled && claimed.Part <= 1 {
		d.runner.options.Observe.TickStarted(j, d.runner.now().Sub(time.UnixMicro(claimed.Tick)))
	}
	begun := make(chan struct{})
	claimed.begun = sync.OnceFunc(func() { close(begun) })
	waitedInLine := claimed.Kind == CaughtUp && claimed.Part <= 1
	d.working.Go(func() {
		free := func() {}
		if waitedInLine {
			free = d.runner.docs.keepSlot(d.ctx, d.runner.log.With("job", j.Name, "budget", j.Budget), catchUpSlot(j.Budget), slot)
		}
		d.runner.pass(d.ctx, d.soft, j, claimed, next, false)
		claimed.begun()
		free()
		if d.soft.Err() == nil && isPlanned(d.runner.budget(j.Budget)) { // others may have what it did not need
			d.runner.planBudget(d.ctx, j.Budget)
		}
		if j.OnExhausted == DeferExhausted {
			d.resumeDeferred(j.Budget)
		}
		if waitedInLine { // other jobs of the budget wait for the slot
			d.scheduleNextCatchUp(j)
			return
		}
		d.scheduleLook(j.Name)
	})
	return begun
}
