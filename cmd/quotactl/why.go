package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/view"
)

func newWhyCommand(a *app) *cobra.Command {
	var call budget.Call
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "why BUDGET OPERATION",
		Short: "Say what a call would get now, and why",
		Long: `Say what a call would get now, and show the numbers behind it, limit by limit:
who used what, what is kept for whom, which reservations are open, and when how
much comes back. It charges nothing and exits with 0, whatever the answer.`,
		Example:           `  quotactl why youtube/key1 search.list --job nightly`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			call.Operation = args[1]
			var why budget.Why
			err := a.onStore(cmd.Context(), args[0], func(ctx context.Context, cfg *config.Config, store open.Backend) error {
				a.warnOfJob(cfg, call.Labels.Job)
				defer a.reading("reading the store")()
				b, err := a.budget(cfg, store, args[0])
				if err == nil {
					why, err = b.Why(ctx, call)
				}
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(a.stdout, answer.NewWhy(why))
			}
			return writeText(a.stdout, view.Why(a.screen(), why, all))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&call.Labels.Job, "job", "", "the call's `JOB`, which has its share and its floor")
	a.sandboxFlag(cmd)
	verboseFlag(cmd, &all)
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}
