package jobs

import (
	"context"
	"sync"
	"time"
)

// lookAgain is how long the daemon trusts its clock: it may have been stepped,
// or the machine suspended, while a timer ran.
const lookAgain = time.Minute

// Run follows the schedules until it is told to stop; with startNow each job
// first has a manual pass, which replaces no tick. When drain is closed no
// further page is started, pages under way have the jobs' grace, the records
// are written, and Run returns nil. When ctx ends first, or meanwhile, requests
// are cut at once and Run returns the context's cause.
//
// A tick that comes late, after a suspend say, is run once; older ones of the
// same job are logged as missed.
func (r *Runner) Run(ctx context.Context, drain <-chan struct{}, startNow bool) error {
	var passes sync.WaitGroup
	begin := func(s start) { passes.Go(func() { r.pass(ctx, drain, s) }) }
	agenda := r.newAgenda()
	for _, j := range r.jobs {
		fields := []any{"job", j.Name, "budget", j.Budget, "schedule", j.Schedule.String(), "timezone", j.Schedule.Zone().String(), "regions", len(j.Regions)}
		if j.Every() > 0 {
			fields = append(fields, "stagger", j.Stagger, "one_every", j.Every())
		}
		r.log.Info("job", append(fields, "next", formatTick(agenda.next[j]))...)
		if startNow {
			begin(start{job: j, manual: true})
		}
	}
	for !stopped(ctx, drain) {
		r.options.Observe.Looked()
		timer := time.NewTimer(agenda.wait())
		select {
		case <-timer.C:
			for _, s := range agenda.due() {
				begin(s)
			}
		case <-drain:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	passes.Wait()
	return context.Cause(ctx)
}

// agenda knows each job's next tick.
type agenda struct {
	*Runner
	looked time.Time // when the clock was last looked at
	next   map[*Job]time.Time
}

func (r *Runner) newAgenda() *agenda {
	a := &agenda{Runner: r, looked: r.now(), next: map[*Job]time.Time{}}
	for _, j := range r.jobs {
		a.next[j] = j.Next(a.looked)
	}
	return a
}

// wait is how long to sleep before the clock is looked at again.
func (a *agenda) wait() time.Duration {
	now := a.now()
	least := lookAgain
	for _, next := range a.next {
		if !next.IsZero() {
			least = min(least, next.Sub(now))
		}
	}
	return max(0, least)
}

// due is what is to be started now. After a step backwards the ticks are
// counted anew from the clock; those that were run before are then taken.
func (a *agenda) due() []start {
	now := a.now()
	if now.Before(a.looked) {
		a.log.Warn("the clock went backwards", "by", a.looked.Sub(now))
		for _, j := range a.jobs {
			a.next[j] = j.Next(now)
		}
	}
	a.looked = now
	var starts []start
	for _, j := range a.jobs {
		tick := a.next[j]
		if tick.IsZero() || tick.After(now) {
			continue
		}
		if latest := j.latest(tick, now); latest.After(tick) {
			a.log.Warn("ticks missed", "job", j.Name, "outcome", "missed", "first", formatTick(tick), "until", formatTick(latest))
			tick = latest
		}
		a.next[j] = j.Next(now)
		a.options.Observe.TickStarted(j, now.Sub(tick))
		starts = append(starts, start{job: j, tick: tick})
	}
	return starts
}

// latest is the newest tick up to now, at least tick. It looks back in growing
// spans, so that a long absence costs no walk over all of its ticks.
func (j *Job) latest(tick, now time.Time) time.Time {
	for span := time.Second; now.Add(-span).After(tick); span *= 2 {
		if found := j.Next(now.Add(-span)); !found.IsZero() && !found.After(now) {
			tick = found
			break
		}
	}
	for next := j.Next(tick); !next.IsZero() && !next.After(now); next = j.Next(tick) {
		tick = next
	}
	return tick
}
