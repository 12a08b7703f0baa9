package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// cancelAnswer is the JSON answer of cancel.
type cancelAnswer struct {
	Job string `json:"job"`
	// Cancelled are the passes that are to end; none: nothing was under way.
	Cancelled []jobs.ActivePass `json:"cancelled"`
	// Untold is why their daemons could not be notified; empty: they were.
	Untold string `json:"untold,omitempty"`
}

func newCancelCommand(a *app) *cobra.Command {
	var note string
	var inSandbox, asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "End a pass that is under way",
		Long: `End the passes of a job that are under way, on any machine, in the same way as a
stop of their daemon: no further page starts, pages under way have the job's
grace, commands are asked to stop, and what was spent stays spent. A daemon does
this within seconds, a run --once within 15 seconds. The record says who ended
the pass.

The next tick runs as usual and begins with the first region that was not
started. Waiting ticks and requests stay: trigger --cancel withdraws requests
and passes that are deferred, pause skips ticks. A job that is no longer
configured can be named.`,
		Example: `  quotactl cancel trending
  quotactl cancel trending --note "the upstream asks us to stop"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJobs(cmd.Context(), inSandbox, func(ctx context.Context, _ *config.Config, list []*jobs.Job, store open.Backend) error {
				chosen, err := jobsOrKept(ctx, store, list, args)
				if err != nil {
					return err
				}
				return a.cancel(ctx, store, chosen[0], note, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` for the pass's record; no secrets")
	sandboxFlag(cmd, &inSandbox)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// cancel has the passes of a job end.
func (a *app) cancel(ctx context.Context, store jobs.State, job *jobs.Job, note string, asJSON bool) error {
	ended, untold := jobs.CancelPasses(ctx, store, job, note)
	if untold != nil && !errors.Is(untold, jobs.ErrUntold) {
		return untold
	}
	if asJSON {
		answer := cancelAnswer{Job: job.Name, Cancelled: append([]jobs.ActivePass{}, ended...)}
		if untold != nil {
			answer.Untold = untold.Error() + "; the passes end within 15 seconds"
		}
		return writeJSON(a.stdout, answer)
	}
	t := table.New("JOB", "DONE")
	if len(ended) == 0 {
		t.Add(job.Name, "nothing is under way")
		views, err := answer.LookAtJobs(ctx, a.now(), store, []*jobs.Job{job})
		if err != nil {
			return err
		}
		if v := views[0]; len(v.Deferred)+len(v.Requests) > 0 {
			t.Below("", "quotactl trigger "+job.Name+" --cancel takes back what waits:")
			for _, note := range view.Deferred(v, a.now()) {
				t.Below("", note)
			}
			for _, r := range v.Requests {
				t.Below("", requestText(r)+" and waits")
			}
		}
		return t.Write(a.stdout)
	}
	t.Add(job.Name, "asked to stop")
	for _, pass := range ended {
		progress, err := answer.ReadRecord(pass.Progress)
		if err != nil {
			return fmt.Errorf("job %s: read the record of its pass under way: %w", job.Name, err)
		}
		t.Below("", activeText(pass, progress))
	}
	if untold != nil {
		t.Below("", untold.Error()+"; the passes end within 15 seconds")
	}
	return t.Write(a.stdout)
}

// addDropped adds the passes that do not go on any more.
func (a *app) addDropped(t *table.Table, list []jobs.DeferredPass) {
	for _, note := range view.Deferred(answer.Job{Overview: jobs.Overview{Deferred: list}}, a.now()) {
		t.Below("", "was "+note)
	}
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
	t := table.New("JOB", "DONE")
	if len(taken)+len(dropped) == 0 {
		t.Add(job.Name, "no request waits")
	} else {
		t.Add(job.Name, "taken back")
	}
	for _, r := range taken {
		t.Below("", requestText(r))
	}
	a.addDropped(t, dropped)
	for i, active := range views[0].Active {
		t.Below("", activeText(active, views[0].Progress[i])+"; quotactl cancel "+job.Name+" ends it")
	}
	return t.Write(a.stdout)
}
