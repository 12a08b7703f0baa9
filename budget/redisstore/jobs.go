package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// resultAhead is job_begin.lua's answer on a tick too far past its clock.
const resultAhead = 4

// jobKey is the one key of a job.
func (s *Store) jobKey(job string) []string {
	return []string{s.prefix + ":v1:{job:" + job + "}:s"}
}

// Job implements budget.JobStore.
func (s *Store) Job(ctx context.Context, job string) (budget.JobState, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return budget.JobState{}, err
	}
	defer cancel()
	fields, err := s.run(ctx, s.scripts.jobRead, s.jobKey(job)).Slice()
	if err != nil {
		return budget.JobState{}, s.fault("read job "+job, err)
	}
	if !jobFields(fields) {
		return budget.JobState{}, s.strange("read job "+job, fields)
	}
	return jobState(fields), nil
}

// Begin implements budget.JobStore. When an answer was lost and the pass is
// asked for again, its own mark is no overlap.
func (s *Store) Begin(ctx context.Context, pass budget.BeginPass) (budget.BeginResult, budget.JobState, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return 0, budget.JobState{}, err
	}
	defer cancel()
	manual := 0
	if pass.Manual {
		manual = 1
	}
	reply, err := s.run(ctx, s.scripts.jobBegin, s.jobKey(pass.Job), pass.Holder, pass.Tick, manual, pass.Hold).Slice()
	if err != nil {
		return 0, budget.JobState{}, s.fault("begin a pass of job "+pass.Job, err)
	}
	result := numberAt(reply, 0)
	ahead := tuple(within(resultAhead, resultAhead), count)(reply)
	if !ahead && (!within(int64(budget.Began), int64(budget.Taken))(result) || !jobFields(reply[1:])) {
		return 0, budget.JobState{}, s.strange("begin a pass of job "+pass.Job, reply)
	}
	if ahead {
		return 0, budget.JobState{}, fmt.Errorf("begin a pass of job %s in Redis: %w: its tick is %s, the server's clock shows %s; set the wrong one right", pass.Job, budget.ErrClock,
			time.UnixMicro(pass.Tick).UTC().Format(time.RFC3339), time.UnixMicro(numberAt(reply, 1)).UTC().Format(time.RFC3339))
	}
	return budget.BeginResult(result), jobState(reply[1:]), nil
}

// Renew implements budget.JobStore.
func (s *Store) Renew(ctx context.Context, job, holder string, hold int64) (bool, error) {
	return s.jobDone(ctx, "renew the mark of job ", job, s.scripts.jobRenew, holder, hold)
}

// End implements budget.JobStore.
func (s *Store) End(ctx context.Context, job, holder, nextRegion string, record []byte) (bool, error) {
	return s.jobDone(ctx, "end a pass of job ", job, s.scripts.jobEnd, holder, nextRegion, record)
}

// jobDone runs a script that answers 1 or 0.
func (s *Store) jobDone(ctx context.Context, doing, job string, sc script, args ...any) (bool, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	reply, err := s.run(ctx, sc, s.jobKey(job), args...).Result()
	if err != nil {
		return false, s.fault(doing+job, err)
	}
	if !flag(reply) {
		return false, s.strange(doing+job, reply)
	}
	return number(reply) == 1, nil
}

// jobState reads the fields that job_read.lua tells.
func jobState(fields []any) budget.JobState {
	state := budget.JobState{
		NextRegion: text(fields, 0), LastTick: numberAt(fields, 1), LastManual: numberAt(fields, 2),
		Holder: text(fields, 4), HeldUntil: numberAt(fields, 5), Held: numberAt(fields, 6) == 1,
	}
	if last := text(fields, 3); last != "" {
		state.Last = []byte(last)
	}
	return state
}
