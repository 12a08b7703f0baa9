package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// manual runs a manual pass from its claim to its record.
func (r *Runner) manual(ctx, soft context.Context, j *Job, once bool) Pass {
	claimed, next, end := r.beginManual(ctx, soft, j)
	if end != nil {
		record := Record{
			Tick: Instant{r.now().Truncate(time.Second)}, Kind: Manual, Runs: []Run{},
			Outcome: end.outcome, Reason: end.reason, Error: end.Error(),
		}
		r.notStarted(ctx, j, record)
		return Pass{j.Name, record}
	}
	return r.pass(ctx, soft, j, *claimed, next, once)
}

// notStarted logs a tick, or several, for which no pass is started.
func (r *Runner) notStarted(ctx context.Context, j *Job, record Record) {
	fields := []any{"job", j.Name, "budget", j.Budget, "tick", formatTick(record.Tick.Time), "outcome", record.Outcome, "reason", record.Reason, "error", record.Error}
	if record.Until != nil {
		fields = append(fields, "until", formatTick(record.Until.Time), "ticks", record.Ticks)
	}
	r.log.Log(ctx, max(level(record.Outcome), slog.LevelWarn), "pass not started", fields...)
	if record.Outcome == Failed {
		r.options.Ping(j, record)
	}
	for range max(record.Ticks, 1) {
		r.options.Observe.PassEnded(j, record.Outcome)
	}
}

// beginManual claims a pass that is not on schedule. If a pass that may be dead is in the
// way, it waits until that is known.
func (r *Runner) beginManual(ctx, soft context.Context, j *Job) (got *claim, next string, end *ending) {
	me := claimant{holder: newHolder(), hold: r.docs.hold()}
	const tries = 4 // the first finds a claim in the way, the next finds that it is dead
	for range tries {
		var lapsed []claim
		_, err := r.step(ctx, j, func(s *state, at clocks) (done stepped, err error) {
			got, lapsed, end = nil, s.lapsed(at, me.hold), nil
			if err := at.check(); err != nil {
				return stepped{}, err
			}
			if got = s.claimOf(me.holder); got != nil { // the answer to the claim was lost
				return stepped{}, nil
			}
			next = s.NextRegion
			j.reap(s, at, me, &done)
			switch tick, free := j.freeSecond(at.wall, s.manualBefore(at)); {
			case !j.free(s):
				end = &ending{outcome: Skipped, reason: ReasonOverlap, err: errors.New(overlapText(s.Active[0]))}
			case !free:
				end = failed(ReasonTick, fmt.Errorf("job %s: %w", j.Name, errNoSecond))
			default:
				s.LastManual, next = tick.UnixMicro(), s.NextRegion
				got = s.claim(claim{Tick: tick.UnixMicro(), Kind: Manual, Budget: j.Budget}, at, me)
			}
			done.changed = done.changed || got != nil
			return done, nil
		})
		if err == nil && got == nil && len(lapsed) > 0 && me.reap == nil {
			dead, wait := r.dead(j, lapsed)
			if len(dead) > 0 {
				me.reap, err = r.fence(ctx, j, dead)
			} else {
				r.log.Warn("another pass of the job may have died; waiting to see whether it is still alive", "job", j.Name, "tick", formatTick(time.UnixMicro(lapsed[0].Tick)), "wait", wait)
				if end := waitFor(soft, wait); end != nil {
					return nil, "", end
				}
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, "", storeEnding(ctx, err)
		}
		break
	}
	return got, next, end
}

// errNoSecond: the tick that names a manual pass must be a second that no other pass
// uses.
var errNoSecond = errors.New("no second is free for a manual pass: its schedule or its output files take them all")

// storeEnding is the ending of a pass that could not begin because of the store; the
// error already says what was being done.
func storeEnding(ctx context.Context, err error) *ending {
	switch {
	case ctx.Err() != nil:
		return cut(ctx)
	case errors.Is(err, budget.ErrClock):
		return failed(ReasonClock, fmt.Errorf("the clocks of this machine and of the store do not agree; set the one that is wrong: %w", err))
	}
	return failed(ReasonStore, err)
}

// freeSecond is the first second, from now on, that is after the last manual tick, is no
// tick of the schedule, and has no files of a pass on another store; false if there is
// none within two minutes.
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

// hasOutput reports whether a pass of this tick left files.
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
