package jobs

import (
	"context"
	"fmt"
	"os"
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
	for range races {
		found, err := p.options.State.Job(ctx, p.job.Name)
		if err != nil {
			return budget.JobState{}, p.storeEnding(ctx, err)
		}
		tick, free := p.job.freeSecond(p.now(), time.UnixMicro(found.LastManual))
		if !free {
			return budget.JobState{}, failed(ReasonTick, fmt.Errorf("job %s: no second is free for a manual pass: its schedule, or its output files, have them all", p.job.Name))
		}
		p.tick = tick
		var state budget.JobState
		if state, end = p.tryBegin(ctx, true); end == nil || end.reason != ReasonTaken {
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
		return budget.JobState{}, p.storeEnding(ctx, err)
	case result == budget.Overlap:
		return state, &ending{Skipped, ReasonOverlap, fmt.Errorf(
			"another pass of the job is under way; its mark stands until %s unless it is renewed", formatTick(time.UnixMicro(state.HeldUntil)))}
	case result == budget.Taken:
		return state, &ending{Skipped, ReasonTaken, fmt.Errorf("a pass of this tick, or of a later one, began before")}
	}
	return state, nil
}

func (p *pass) storeEnding(ctx context.Context, err error) *ending {
	if ctx.Err() != nil {
		return cut(ctx)
	}
	return failed(ReasonStore, fmt.Errorf("begin a pass of job %s: %w", p.job.Name, err))
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
