package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/jobs"
)

func newCancelCommand(a *app) *cobra.Command {
	var note string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "End a pass that is under way",
		Long: `End the passes of a job that are under way, on any machine, in the same way as a
stop of their daemon: no further page starts, pages under way have the job's
grace, commands are asked to stop, and what was spent stays spent. A daemon does
this within seconds, a run --once within 15 seconds. The record says who ended
the pass.

The next tick runs as usual and begins with the regions that were cut, then
those that were not started. Waiting ticks and requests stay: trigger --cancel
withdraws requests and passes that are deferred, pause skips ticks. A job that
is no longer configured can be named.`,
		Example: `  quotactl cancel trending
  quotactl cancel trending --note "the upstream asks us to stop"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJobs(cmd.Context(), func(ctx context.Context, _ *config.Config, list []*jobs.Job, store open.Backend) error {
				chosen, err := jobsOrKept(ctx, store, list, args)
				if err != nil {
					return err
				}
				return a.cancel(ctx, store, chosen[0], note, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` for the pass's record; no secrets")
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// cancel has the passes of a job end.
func (a *app) cancel(ctx context.Context, store jobs.State, job *jobs.Job, note string, asJSON bool) error {
	ended, untold := jobs.CancelPasses(ctx, store, job, note)
	if untold != nil && !errors.Is(untold, jobs.ErrUntold) {
		return untold
	}
	const soon = "; the passes end within 15 seconds"
	if asJSON {
		done := answer.Cancel{Job: job.Name, Cancelled: append([]jobs.ActivePass{}, ended...)}
		if untold != nil {
			done.Untold = untold.Error() + soon
		}
		return writeJSON(a.stdout, done)
	}
	var text string
	var err error
	if len(ended) == 0 {
		var views []answer.Job
		if views, err = answer.LookAtJobs(ctx, a.now(), store, []*jobs.Job{job}); err == nil {
			text = jobview.NothingToCancel(a.screen(), views[0], a.now())
		}
	} else if text, err = jobview.Cancelled(a.screen(), job.Name, ended); err == nil && untold != nil {
		text += a.screen().Wrap("  ", untold.Error()+soon)
	}
	if err != nil {
		return err
	}
	return writeText(a.stdout, text)
}

// takeBack takes back the requests of a job that wait, and its deferred passes.
func (a *app) takeBack(ctx context.Context, store jobs.State, job *jobs.Job, asJSON bool) error {
	taken, dropped, err := jobs.TakeBack(ctx, store, job)
	if err != nil {
		return err
	}
	views, err := answer.LookAtJobs(ctx, a.now(), store, []*jobs.Job{job})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.stdout, answer.NewTakenBack(views[0], taken, dropped))
	}
	return writeText(a.stdout, jobview.TakenBack(a.screen(), views[0], a.now(), taken, dropped))
}
