package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/jobs"
)

func newJobsCommand(a *app) *cobra.Command {
	var inSandbox, asJSON bool
	cmd := &cobra.Command{
		Use:   "jobs [JOB…]",
		Short: "Show the jobs: state, last pass, next run",
		Long: `Show all jobs, or those named, by budget: when each runs next, whether it runs,
waits or is paused, and how its last pass went. The lines below say what is
under way and on which host, what waits, who paused a job and why, which ticks
no daemon has taken, how many units a pass is expected to take and where that
number comes from, and whether a daemon is running. Everything is read from
the store, so it is the same on every machine; a daemon renews its sign of life
twice a minute.`,
		Example: `  quotactl jobs
  quotactl jobs trending --json`,
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJobs(cmd.Context(), inSandbox, func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
				all := list
				list, err := chosenJobs(list, args)
				if err != nil {
					return err
				}
				seen, err := a.reader(cfg, all, store).State(ctx, list)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(a.stdout, seen.JSON())
				}
				if len(seen.Jobs) == 0 {
					return writeText(a.stdout, table.Wrap("", fmt.Sprintf("%s has no jobs. quotactl init writes a sample; a job of a crontab needs no table.", a.configPath)))
				}
				return writeText(a.stdout, jobview.Jobs(seen.At, seen.Daemons, seen.Budgets, seen.Jobs, seen.Ahead))
			})
		},
	}
	sandboxFlag(cmd, &inSandbox)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// onJobs opens the store, or the sandbox's, for one thing to do with the jobs of the
// configuration.
func (a *app) onJobs(ctx context.Context, inSandbox bool, do func(context.Context, *config.Config, []*jobs.Job, open.Backend) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg, list, err := a.loadConfig()
	if err != nil {
		return err
	}
	if inSandbox {
		if err := a.useSandbox(cfg); err != nil {
			return err
		}
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, cfg, list, store), store.Close())
}

// sandboxFlag has a command work on the sandbox's store.
func sandboxFlag(cmd *cobra.Command, in *bool) {
	cmd.Flags().BoolVar(in, "sandbox", false, "use the sandbox's store, sandbox.db beside the configuration")
}
