package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// begin takes the job's mark for the pass, whose tick it finds first when the
// pass is manual.
func (p *pass) begin(ctx context.Context, manual bool) (budget.JobState, *ending) {
	if !manual {
		return p.tryBegin(ctx, false)
	}
	p.tick = p.now().Truncate(time.Second)
	const races = 5 // with other manual passes that take the second first
	var end *ending
	// A newest tick that a wrong clock noted lies in the store's future, and so
	// does what comes after it.
	doubted := int64(0)
	for range races {
		found, err := p.options.State.Job(ctx, p.job.Name)
		if err != nil {
			return budget.JobState{}, storeEnding(ctx, err)
		}
		last := found.LastManual
		if last == doubted {
			last = 0
		}
		now := p.now()
		tick, free := p.job.freeSecond(now, time.UnixMicro(last))
		if !free {
			return budget.JobState{}, failed(ReasonTick, fmt.Errorf("job %s: no second is free for a manual pass: its schedule, or its output files, have them all", p.job.Name))
		}
		p.tick = tick
		var state budget.JobState
		state, end = p.tryBegin(ctx, true)
		switch {
		case end == nil:
			return state, nil
		case end.reason == ReasonTaken:
		case end.reason == ReasonClock && last >= now.Truncate(time.Second).UnixMicro():
			doubted = last
		default:
			return state, end
		}
	}
	return budget.JobState{}, end
}

// tryBegin asks the state for the mark.
func (p *pass) tryBegin(ctx context.Context, manual bool) (budget.JobState, *ending) {
	result, state, err := p.options.State.Begin(ctx, budget.BeginPass{
		Job: p.job.Name, Holder: p.holder, Tick: p.tick.UnixMicro(), Manual: manual, Hold: holdFor.Microseconds(),
	})
	switch {
	case err != nil:
		return budget.JobState{}, storeEnding(ctx, err)
	case result == budget.Overlap:
		return state, &ending{outcome: Skipped, reason: ReasonOverlap, err: fmt.Errorf(
			"another pass of the job is under way, %s; its mark stands until %s unless it is renewed",
			placeOf(state.Holder), formatTick(time.UnixMicro(state.HeldUntil)))}
	case result == budget.Taken:
		newest := state.LastTick
		if manual {
			newest = state.LastManual
		}
		return state, &ending{outcome: Skipped, reason: ReasonTaken, err: fmt.Errorf(
			"a pass of this tick, or of a later one, began before: the newest is of %s", formatTick(time.UnixMicro(newest)))}
	}
	return state, nil
}

// storeEnding is the ending of a pass that the store did not let begin; its
// error says already what was being done.
func storeEnding(ctx context.Context, err error) *ending {
	switch {
	case ctx.Err() != nil:
		return cut(ctx)
	case errors.Is(err, budget.ErrClock):
		return failed(ReasonClock, fmt.Errorf("the clocks of this machine and of the store do not agree; set the one that is wrong: %w", err))
	}
	return failed(ReasonStore, err)
}

// newHolder names a pass: where it runs, and what no other pass has.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())
}

// placeOf is where a holder's pass runs, for people.
func placeOf(holder string) string {
	parts := strings.Split(holder, "/")
	if len(parts) != 3 {
		return "of " + holder
	}
	return fmt.Sprintf("in process %s on %s", parts[1], parts[0])
}

// freeSecond is the first second, from now on, that is after the last manual
// tick, not one of the schedule's, and without files of a pass on another
// store; false when there is none for two minutes.
func (j *Job) freeSecond(now, lastManual time.Time) (time.Time, bool) {
	const tries = 120
	tick := now.Truncate(time.Second).UTC()
	if !tick.After(lastManual) {
		tick = lastManual.Truncate(time.Second).Add(time.Second).UTC()
	}
	for range tries {
		if !j.Schedule.Ticks(tick) && !j.hasOutput(tick) {
			return tick, true
		}
		tick = tick.Add(time.Second)
	}
	return time.Time{}, false
}

// hasOutput reports whether a pass of this tick has left files.
func (j *Job) hasOutput(tick time.Time) bool {
	if j.Fetch == nil {
		return false
	}
	for _, region := range j.Regions {
		final := j.outputPath(tick, region)
		for _, path := range []string{final, final + partialSuffix} {
			if _, err := os.Lstat(path); err == nil {
				return true
			}
		}
	}
	return false
}
