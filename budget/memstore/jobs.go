package memstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget"
)

// Job implements budget.JobStore.
func (s *Store) Job(ctx context.Context, job string) (budget.JobState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return budget.JobState{}, err
	}
	return s.job(job), nil
}

// job is a copy of the state, with Held as of now.
func (s *Store) job(job string) budget.JobState {
	state := s.jobs[job]
	if state == nil {
		return budget.JobState{}
	}
	found := *state
	found.Held = found.Holder != "" && found.HeldUntil > s.clock()
	return found
}

// Begin implements budget.JobStore.
func (s *Store) Begin(ctx context.Context, pass budget.BeginPass) (budget.BeginResult, budget.JobState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, budget.JobState{}, err
	}
	found := s.job(pass.Job)
	newest, ahead := found.LastTick, s.clock()+budget.ClockTolerance
	if pass.Manual {
		newest = found.LastManual
	}
	if newest > ahead {
		newest = 0
	}
	switch {
	case pass.Tick > ahead:
		return 0, found, fmt.Errorf("memory store: begin a pass of job %s: %w: its tick is %d µs, the clock shows %d", pass.Job, budget.ErrClock, pass.Tick, s.clock())
	case found.Held && found.Holder == pass.Holder:
		return budget.Began, found, nil
	case found.Held:
		return budget.Overlap, found, nil
	case pass.Tick <= newest:
		return budget.Taken, found, nil
	}
	next := found
	next.Holder, next.HeldUntil = pass.Holder, s.clock()+pass.Hold
	if pass.Manual {
		next.LastManual = pass.Tick
	} else {
		next.LastTick = pass.Tick
	}
	s.jobs[pass.Job] = &next
	return budget.Began, found, nil
}

// Renew implements budget.JobStore.
func (s *Store) Renew(ctx context.Context, job, holder string, hold int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	state := s.jobs[job]
	if state == nil || state.Holder != holder {
		return false, nil
	}
	state.HeldUntil = s.clock() + hold
	return true, nil
}

// End implements budget.JobStore.
func (s *Store) End(ctx context.Context, job, holder, nextRegion string, record []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	state := s.jobs[job]
	if state != nil && state.Holder == "" && state.NextRegion == nextRegion && bytes.Equal(state.Last, record) {
		return true, nil
	}
	if state == nil || state.Holder != holder {
		return false, nil
	}
	state.Holder, state.HeldUntil = "", 0
	state.NextRegion, state.Last = nextRegion, append([]byte(nil), record...)
	return true, nil
}
