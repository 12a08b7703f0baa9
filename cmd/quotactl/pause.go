package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/jobs"
)

func newPauseCommand(a *app) *cobra.Command {
	var note string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pause JOB --note TEXT",
		Short: "Pause a job: skip its scheduled runs",
		Long: `Skip a job's scheduled runs, on every machine, until it is resumed. Each skipped
tick is recorded. quotactl jobs, status and runs show the note, who paused the
job, and when. A pass under way continues, one that is deferred does not, and
trigger still works. Pausing a paused job replaces the note.`,
		Example:           `  quotactl pause trending --note "its consumer is being moved until Friday"`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(note) == "" {
				return usage("pause %s: say why with --note TEXT", args[0])
			}
			return a.onJob(cmd.Context(), args[0], func(ctx context.Context, store open.Backend, job *jobs.Job) error {
				set, before, dropped, err := jobs.SetPause(ctx, store, job, note)
				if err != nil {
					return err
				}
				return a.answerPause(answer.Pause{Job: job.Name, Paused: &set, Before: before, Dropped: dropped}, nil, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` that says why; no secrets")
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume JOB",
		Short: "Resume a paused job",
		Long: `Resume a paused job with its next tick. Skipped ticks are not made up; use
quotactl trigger to start a pass. A job that is not paused does not change.`,
		Example:           `  quotactl resume trending`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJob(cmd.Context(), args[0], func(ctx context.Context, store open.Backend, job *jobs.Job) error {
				before, err := jobs.EndPause(ctx, store, job)
				if err != nil && !errors.Is(err, jobs.ErrUntold) {
					return err
				}
				return a.answerPause(answer.Pause{Job: job.Name, Before: before}, err, asJSON)
			})
		},
	}
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// answerPause says what became of a pause.
func (a *app) answerPause(done answer.Pause, untold error, asJSON bool) error {
	if asJSON {
		return writeJSON(a.stdout, done)
	}
	return writeText(a.stdout, jobview.Paused(a.screen(), done, a.now(), untold))
}

// onJob opens the store, or the sandbox's, for one thing to do with a job.
func (a *app) onJob(ctx context.Context, name string, do func(context.Context, open.Backend, *jobs.Job) error) error {
	return a.onJobs(ctx, func(ctx context.Context, _ *config.Config, list []*jobs.Job, store open.Backend) error {
		chosen, err := chosenJobs(list, []string{name})
		if err != nil {
			return err
		}
		return do(ctx, store, chosen[0])
	})
}
