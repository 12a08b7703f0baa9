package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

func newJobsCommand(a *app) *cobra.Command {
	var asJSON bool
	var w watchFlags
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
			if err := w.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.onJobs(cmd.Context(), func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
				all := list
				list, err := chosenJobs(list, args)
				if err != nil {
					return err
				}
				reader := a.reader(cfg, all, store)
				if w.watch {
					reader.Keeps = forecastKept
					return a.watch(ctx, w, asJSON, func(ctx context.Context) (watched, error) {
						seen, err := reader.State(ctx, list)
						if seen.Unread != nil {
							a.logger().Warn("a budget is missing", "error", seen.Unread)
						}
						return watched{text: func(on screen.Screen) string { return a.jobsText(on, seen) }, json: seen.JSON(), lines: jobsLines(seen)}, err
					})
				}
				read := a.reading("reading the store")
				seen, err := reader.State(ctx, list)
				read()
				if err != nil {
					return err
				}
				if asJSON {
					err = writeJSON(a.stdout, seen.JSON())
				} else {
					err = writeText(a.stdout, a.jobsText(a.screen(), seen))
				}
				return cmp.Or(err, seen.Unread)
			})
		},
	}
	a.sandboxFlag(cmd)
	w.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// jobsText shows jobs to people.
func (a *app) jobsText(on screen.Screen, seen look.Jobs) string {
	if len(seen.Jobs) == 0 {
		return on.Wrap("", fmt.Sprintf("%s has no jobs. quotactl init writes a sample; a job of a crontab needs no table.", a.configPath))
	}
	return jobview.Jobs(on, seen.At, seen.Daemons, seen.Budgets, seen.Jobs, seen.Ahead)
}

// jobsLines are what a watch tells a pipe of.
func jobsLines(seen look.Jobs) (list []watchedLine) {
	for _, job := range seen.Jobs {
		list = append(list, watchedLine{job.Name, jobview.Brief(job)})
	}
	return list
}

// onJobs opens the store, or the sandbox's, for one thing to do with the jobs of the
// configuration.
func (a *app) onJobs(ctx context.Context, do func(context.Context, *config.Config, []*jobs.Job, open.Backend) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg, list, err := a.loadConfig()
	if err != nil {
		return err
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, cfg, list, store), store.Close())
}

// sandboxFlag has a command work on the sandbox's store.
func (a *app) sandboxFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.inSandbox, "sandbox", false, "use the sandbox's store, sandbox.db beside the configuration")
}

// verboseFlag has a terminal get all that a pipe gets.
func verboseFlag(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "verbose", "v", false, "on a terminal, show every limit, also if that takes more than one screen")
}
