package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// waitLook is the interval between checks of a pass that trigger waits for.
const waitLook = 500 * time.Millisecond

// triggerFlags are the flags of trigger.
type triggerFlags struct {
	regions []string
	note    string
	wait    time.Duration
	cancel  bool
	json    bool
}

// check finds wrong usage of the flags.
func (f *triggerFlags) check(changed func(string) bool) error {
	switch {
	case changed("wait") && f.wait < time.Second:
		return usage("--wait %s: use 1s or more, or leave it out", f.wait)
	case f.cancel && (changed("wait") || changed("region") || changed("note")):
		return usage("--cancel withdraws requests: leave --region, --note and --wait out")
	}
	return nil
}

func newTriggerCommand(a *app) *cobra.Command {
	var f triggerFlags
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Start a pass of a job now, on a daemon",
		Long: `Request a pass of a job now, for all regions or those named. A daemon on any
machine runs it. It starts within seconds, or after the pass under way, even if
the job is paused, and replaces no tick. Without a daemon the request waits for
one; quotactl run --once runs a pass in this process instead.

--wait shows the result when the pass has ended. Exit code 0: it succeeded or
was exhausted. 1: a run failed, the pass was cancelled or withdrawn, or it has
not ended in time. 69: runs failed because of the store alone.

--cancel withdraws the requests that no daemon has started, which are recorded
as skipped, and the passes that wait for units (on_exhausted = "defer"). To end
a pass under way, use quotactl cancel.`,
		Example: `  quotactl trigger trending
  quotactl trigger trending --cancel
  quotactl trigger trending --region US,GB --note "they were empty" --wait 10m`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.onJob(cmd.Context(), args[0], func(ctx context.Context, store open.Backend, job *jobs.Job) error {
				if f.cancel {
					return a.takeBack(ctx, store, job, f.json)
				}
				return a.trigger(ctx, store, job, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.regions, "region", nil, "only these `REGIONS`, separated by commas (else all)")
	flags.StringVar(&f.note, "note", "", "`TEXT` for the pass's record; no secrets")
	spanVar(flags, &f.wait, "wait", 0, "wait up to `SPAN` for the end of the pass")
	flags.BoolVar(&f.cancel, "cancel", false, "withdraw requests that have not started, and deferred passes")
	a.sandboxFlag(cmd)
	flags.BoolVar(&f.json, "json", false, "answer in JSON")
	completeFlag(cmd, "region", a.completeRegion)
	return cmd
}

// trigger asks for a pass, and waits for it if that is wanted.
func (a *app) trigger(ctx context.Context, store open.Backend, job *jobs.Job, f triggerFlags) error {
	views, err := answer.LookAtJobs(ctx, a.now(), store, []*jobs.Job{job})
	if err != nil {
		return err
	}
	daemons, err := jobs.Daemons(ctx, store)
	if err != nil {
		return err
	}
	asked, untold := jobs.Trigger(ctx, store, job, f.regions, f.note)
	switch {
	case untold == nil, errors.Is(untold, jobs.ErrUntold):
	case errors.Is(untold, budget.ErrUnavailable):
		return fmt.Errorf("%w; the request may still be stored: see quotactl jobs %s", untold, job.Name)
	default:
		return untold
	}
	if !f.json {
		if err := writeText(a.stdout, jobview.Asked(a.screen(), views[0], asked, daemons, untold)); err != nil {
			return err
		}
	}
	done := answer.Trigger{Job: job.Name, Request: asked, Daemons: daemons}
	if f.wait > 0 {
		done.Pass, err = a.awaitPass(ctx, store, job, asked, f.wait)
	}
	pass := jobs.Pass{Job: job.Name}
	if done.Pass != nil {
		pass.Record = *done.Pass
	}
	switch {
	case f.json:
		err = errors.Join(err, writeJSON(a.stdout, done))
	case done.Pass != nil:
		err = writeText(a.stdout, "\n"+jobview.Runs(a.screen(), a.now(), answer.RunsOf(pass), true))
	}
	if err == nil && pass.Reason == jobs.ReasonCancelled {
		return &exitError{code: exitFailed}
	}
	return cmp.Or(err, failure([]jobs.Pass{pass}))
}

// awaitPass waits until a pass that was asked for has ended.
func (a *app) awaitPass(ctx context.Context, state jobs.State, job *jobs.Job, asked jobs.Request, wait time.Duration) (*jobs.Record, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTicker(waitLook)
	defer look.Stop()
	var says atomic.Value
	says.Store("waiting for a daemon to start the pass")
	defer a.live.While(func() string { return says.Load().(string) })()
	for {
		answer, err := jobs.AnswerTo(ctx, state, job, asked)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("trigger %s: stopped waiting; the request remains: %w", job.Name, context.Cause(ctx))
		case err == nil && answer.Record != nil:
			return answer.Record, nil
		case err == nil && !answer.Waiting && answer.Active == nil:
			return nil, fmt.Errorf("trigger %s: the pass has ended, and its record is no longer kept", job.Name)
		}
		if err == nil && answer.Active != nil {
			says.Store(a.underWay(job, answer))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		case <-over.C:
			return nil, notOver(job, wait, answer, err)
		}
	}
}

// underWay says how far a pass is.
func (a *app) underWay(job *jobs.Job, given jobs.Answer) string {
	progress, err := answer.ReadRecord(given.Active.Progress)
	if err != nil {
		progress = nil // the line shows less
	}
	ended, units := answer.Ended(progress), int64(0)
	if ended == "" {
		return job.Name + ": under way since " + a.errorScreen().Time(given.Active.Since.Time)
	}
	for _, run := range progress.Runs {
		units += run.Units
	}
	return fmt.Sprintf("%s: %s runs ended, %s; under way since %s", job.Name, ended, view.Plural(int(units), "unit"), a.errorScreen().Time(given.Active.Since.Time))
}

// notOver is the error of a pass that has not ended in time.
func notOver(job *jobs.Job, wait time.Duration, given jobs.Answer, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("trigger %s: the request remains; its state is unknown: %w", job.Name, err)
	case given.Waiting:
		return fmt.Errorf("trigger %s: no daemon has started the pass within %s; is one running on this store? The request remains until one starts it", job.Name, limit.SpanText(wait))
	}
	progress, err := answer.ReadRecord(given.Active.Progress)
	if err != nil {
		return fmt.Errorf("trigger %s: read the record of the pass under way: %w", job.Name, err)
	}
	return fmt.Errorf("trigger %s: not finished within %s: %s; see quotactl runs %s", job.Name, limit.SpanText(wait), jobview.Active(screen.Pipe(), *given.Active, progress), job.Name)
}
