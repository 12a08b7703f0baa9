package jobs

import (
	"context"
	"crypto/rand"
	"slices"
)

// untold is a step whose answer was lost: it is not known whether its records were stored.
type untold struct {
	id      string
	records []Record
}

// step has do take a step in a job's state, and reports the records of the step once they
// are stored. If the store's answer is lost, the next step of this process that reads the
// state finds out whether they were. So each stored record is reported once, however
// often its step is repeated.
func (r *Runner) step(ctx context.Context, j *Job, do func(s *state, at clocks) (stepped, error)) (done stepped, err error) {
	id := rand.Text()
	r.mu.Lock()
	before := r.untold[j.Name]
	r.mu.Unlock()
	err = r.docs.change(ctx, j, func(s *state, at clocks) (edit, error) {
		for _, step := range before {
			if r.settle(j, step.id) && slices.Contains(s.Steps, step.id) {
				r.tell(ctx, j, step.records)
			}
		}
		var err error
		if done, err = do(s, at); err == nil && !done.changed {
			err = errStays
		}
		if len(done.records) > 0 {
			s.Steps = remember(s.Steps, id, keptSteps)
		}
		return edit{records: done.kept()}, err
	})
	switch {
	case err == nil:
		r.tell(ctx, j, done.records)
	case len(done.records) > 0:
		r.mu.Lock()
		r.untold[j.Name] = append(r.untold[j.Name], untold{id, done.records})
		r.mu.Unlock()
	}
	return done, err
}

// settle forgets an untold step, now that the state says what became of it; false if
// another goroutine has done so.
func (r *Runner) settle(j *Job, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.untold[j.Name]
	i := slices.IndexFunc(before, func(step untold) bool { return step.id == id })
	if i >= 0 {
		r.untold[j.Name] = slices.Concat(before[:i], before[i+1:])
	}
	return i >= 0
}

// tell logs, counts and pings what was recorded without a pass of this process.
func (r *Runner) tell(ctx context.Context, j *Job, records []Record) {
	for _, record := range records {
		if !record.Started.IsZero() && record.Outcome != Lost { // it began, and was deferred
			r.log.Warn("a deferred pass does not go on", "job", j.Name, "budget", j.Budget, "tick", formatTick(record.Tick.Time), "outcome", record.Outcome, "reason", record.Reason)
			r.options.Ping(j, record)
			r.options.Observe.PassEnded(j, record.Outcome)
			continue
		}
		switch record.Outcome {
		case Missed:
			fields := []any{"job", j.Name, "outcome", Missed, "reason", record.Reason, "first", formatTick(record.Tick.Time)}
			ticks := 1
			if record.Until != nil {
				ticks = record.Ticks
				fields = append(fields, "until", formatTick(record.Until.Time))
			}
			r.log.Warn("ticks missed", append(fields, "ticks", ticks)...)
			r.options.Observe.TicksMissed(j, ticks)
		case Lost:
			r.log.Error("pass lost", "job", j.Name, "budget", j.Budget, "tick", formatTick(record.Tick.Time), "reason", record.Reason, "error", record.Error)
			r.options.Ping(j, record)
			r.options.Observe.PassEnded(j, record.Outcome)
		default:
			r.notStarted(ctx, j, record)
		}
	}
}
