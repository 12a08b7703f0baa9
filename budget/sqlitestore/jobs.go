package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// Job reads what is kept of a job; the zero state when nothing is.
func (s *Store) Job(ctx context.Context, job string) (budget.JobState, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	var state budget.JobState
	err := s.read(bounded, func(c *conn) error {
		now, err := s.jobClock(c, false)
		if err == nil {
			state, _, err = s.job(c, job, now)
		}
		return err
	})
	if err != nil {
		return budget.JobState{}, s.explain(ctx, "read job "+job, err)
	}
	return state, nil
}

// job reads a job's state as of now; the zero state when nothing is kept.
func (s *Store) job(c *conn, job string, now int64) (state budget.JobState, kept bool, err error) {
	boot := ""
	kept, err = c.first("SELECT next_region, last_tick, last_manual, last, holder, held_until, boot_id FROM job WHERE name = ?", []any{job},
		&state.NextRegion, &state.LastTick, &state.LastManual, &state.Last, &state.Holder, &state.HeldUntil, &boot)
	// No process outlives its boot: a mark of an earlier one holds nobody off.
	state.Held = state.Holder != "" && state.HeldUntil > now && s.clocks.thisBoot(boot)
	return state, kept, err
}

// jobClock is the clock of the overlap marks: as a budget's, it goes by the boot
// clock. Where it begins is kept when that may be written.
func (s *Store) jobClock(c *conn, write bool) (int64, error) {
	var a anchor
	if _, err := c.first("SELECT boot_id, boot_offset FROM job_clock WHERE one = 1", nil, &a.boot, &a.offset); err != nil {
		return 0, err
	}
	now, next, err := s.clocks.read(a)
	if err == nil && write && next != a {
		err = c.exec("INSERT OR REPLACE INTO job_clock(one, boot_id, boot_offset) VALUES (1, ?, ?)", next.boot, next.offset)
	}
	return now, err
}

// Begin takes the job's overlap mark for a pass and notes its tick. The state
// is the one found before.
func (s *Store) Begin(ctx context.Context, pass budget.BeginPass) (result budget.BeginResult, found budget.JobState, err error) {
	var ahead error
	err = s.change(ctx, "begin a pass of job "+pass.Job, pass.Job, func(state *budget.JobState, _ bool, now int64) bool {
		found = *state
		latest := s.clocks.wallAt(now) + budget.ClockTolerance
		if pass.Tick > latest {
			ahead = fmt.Errorf("begin a pass of job %s: %w: its tick is %s, the machine's clock shows %s; set the clock right", pass.Job, budget.ErrClock,
				time.UnixMicro(pass.Tick).UTC().Format(time.RFC3339), time.UnixMicro(latest-budget.ClockTolerance).UTC().Format(time.RFC3339))
			return false
		}
		newest := &state.LastTick
		if pass.Manual {
			newest = &state.LastManual
		}
		switch {
		case state.Held && state.Holder == pass.Holder:
			result = budget.Began
			return false
		case state.Held:
			result = budget.Overlap
			return false
		case pass.Tick <= *newest && *newest <= latest:
			result = budget.Taken
			return false
		}
		*newest = pass.Tick
		state.Holder, state.HeldUntil = pass.Holder, now+pass.Hold
		result = budget.Began
		return true
	})
	if err = errors.Join(err, ahead); err != nil {
		return 0, budget.JobState{}, err
	}
	return result, found, nil
}

// Renew keeps the mark standing for hold µs from now; false when another pass
// holds it or it was given up.
func (s *Store) Renew(ctx context.Context, job, holder string, hold int64) (mine bool, err error) {
	err = s.change(ctx, "renew the mark of job "+job, job, func(state *budget.JobState, kept bool, now int64) bool {
		mine = kept && state.Holder == holder
		state.HeldUntil = now + hold
		return mine
	})
	return mine && err == nil, err
}

// End gives the mark up and records the pass; false, with nothing recorded,
// when another pass took the mark meanwhile.
func (s *Store) End(ctx context.Context, job, holder, nextRegion string, record []byte) (mine bool, err error) {
	err = s.change(ctx, "end the pass of job "+job, job, func(state *budget.JobState, kept bool, _ int64) bool {
		if kept && state.Holder == "" && state.NextRegion == nextRegion && bytes.Equal(state.Last, record) {
			mine = true
			return false
		}
		mine = kept && state.Holder == holder
		state.Holder, state.HeldUntil = "", 0
		state.NextRegion, state.Last = nextRegion, append([]byte(nil), record...)
		return mine
	})
	return mine && err == nil, err
}

// change reads a job's state, has it changed, and writes it when change says so.
func (s *Store) change(ctx context.Context, what, job string, change func(state *budget.JobState, kept bool, now int64) bool) error {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	err := s.write(bounded, func(c *conn) error {
		now, err := s.jobClock(c, true)
		if err != nil {
			return err
		}
		state, kept, err := s.job(c, job, now)
		if err != nil || !change(&state, kept, now) {
			return err
		}
		return c.exec("INSERT OR REPLACE INTO job(name, next_region, last_tick, last_manual, last, holder, held_until, boot_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			job, state.NextRegion, state.LastTick, state.LastManual, state.Last, state.Holder, state.HeldUntil, s.clocks.id)
	})
	return s.explain(ctx, what, err)
}
