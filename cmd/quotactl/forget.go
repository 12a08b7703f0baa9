package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/jobs"
)

// forgetAnswer is the JSON answer of forget.
type forgetAnswer struct {
	Job       string `json:"job"`
	Forgotten bool   `json:"forgotten"`
}

func newForgetCommand(a *app) *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "forget JOB --yes",
		Short: "Remove the history of a job that is no longer configured",
		Long: `Remove what the store keeps of a job that is no longer configured: its history,
pause, requests and checkpoints. What it has charged stays in the ledger, and
its files stay. A configured job, or one with a pass under way, is not
forgotten. Make sure that no daemon on the store still has the job in its
configuration: that daemon would run the job again.`,
		Example: `  quotactl forget trending --yes`,
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usage("forget %s removes the job's history, pause, requests and checkpoints: confirm with --yes", args[0])
			}
			return a.onJobs(cmd.Context(), func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
				if slices.ContainsFunc(list, func(job *jobs.Job) bool { return job.Name == args[0] }) {
					return usage("forget %s: %s has this job: remove it there and from all daemons' configurations first; quotactl pause stops it from running", args[0], cfg.File)
				}
				if _, err := jobsOrKept(ctx, store, list, args); err != nil {
					return err
				}
				if err := jobs.Forget(ctx, store, args[0]); err != nil {
					return err
				}
				if asJSON {
					return writeJSON(a.stdout, forgetAnswer{args[0], true})
				}
				t := a.screen().Table("JOB", "DONE")
				t.Add(args[0], "forgotten")
				return t.Write(a.stdout)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm")
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}
