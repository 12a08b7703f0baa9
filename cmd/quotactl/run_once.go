package main

import (
	"context"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// onceAnswer is the JSON answer of run --once.
type onceAnswer struct {
	Passes  []answer.Pass  `json:"passes"`
	Sandbox *sandboxAnswer `json:"sandbox,omitempty"`
}

// sandboxAnswer is what the sandbox counted today, all runs together, and in
// this run alone.
type sandboxAnswer struct {
	sandbox.Usage
	ThisRun sandbox.Usage `json:"this_run"`
}

// runOnce runs one pass of each job and reports the results.
func (a *app) runOnce(ctx context.Context, drain <-chan struct{}, list []*jobs.Job, options jobs.Options, upstream *upstream, asJSON bool) error {
	told := &progress{out: a.stdout, on: a.screen()}
	options.Report = told.run
	if asJSON { // the answer has it all
		options.Report = func(_ *jobs.Job, _ time.Time, run jobs.Run) { told.count(run) }
	}
	runner, err := jobs.New(list, options)
	if err != nil {
		return err
	}
	said := a.live.While(told.text)
	passes := runner.Once(ctx, drain)
	said()
	if asJSON {
		made := onceAnswer{Passes: answer.Passes(passes)}
		if upstream != nil {
			made.Sandbox = &sandboxAnswer{upstream.Usage(), upstream.counted()}
		}
		err = writeJSON(a.stdout, made)
	} else {
		if err = told.err; err == nil {
			err = a.summary(ctx, passes, options.Budgets, upstream)
		}
	}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case err != nil:
		return err
	}
	return failure(passes)
}

// failure is the exit of passes of which something went wrong other than a spent budget or a
// skipped pass: what the store alone caused may succeed once it is back.
func failure(passes []jobs.Pass) error {
	code := 0
	for _, pass := range passes {
		for _, run := range append(slices.Clone(pass.Runs), jobs.Run{Outcome: pass.Outcome, Reason: pass.Reason}) {
			switch {
			case run.Outcome != jobs.Failed && run.Outcome != jobs.TimedOut && run.Outcome != jobs.Lost:
			case run.Reason != jobs.ReasonStore:
				code = exitFailed
			case code == 0:
				code = exitUnavailable
			}
		}
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}
