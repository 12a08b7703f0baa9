package main

import (
	"context"
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
	case anyFailed(passes):
		return &exitError{code: exitFailed}
	}
	return nil
}

// anyFailed reports whether something went wrong other than a spent budget or a skipped
// pass.
func anyFailed(passes []jobs.Pass) bool {
	bad := func(o jobs.Outcome) bool {
		return o == jobs.Failed || o == jobs.TimedOut || o == jobs.Lost
	}
	for _, pass := range passes {
		if bad(pass.Outcome) {
			return true
		}
		for _, run := range pass.Runs {
			if bad(run.Outcome) {
				return true
			}
		}
	}
	return false
}
