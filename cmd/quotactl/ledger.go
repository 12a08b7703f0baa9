package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs/schedule"
)

func newLedgerCommand(a *app) *cobra.Command {
	var by, zone, job string
	var since time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ledger BUDGET",
		Short: "Show who spent what",
		Long: `Show what a budget's ledger holds, summed by operation, job, region or run, with
each one's part of the total. It reaches back as far as the budget's longest window.
If a limit is divided into shares, show below what each of them has used.

With --since, show the history instead, which is kept for 90 days (history in
costs.toml), also by hour or day, of all or of one job. It begins with a whole
hour. By run there is no history: --by run --since sums the ledger.

The history has the calls that were refused, and those that waited and were then
granted, by whichever process; their columns are shown if there are any. --by
limit shows the limits that refused them; "-" is a lock of the whole budget.

drift/LIMIT is what the upstream counts in a limit and no charge explains.
recovered/LIMIT is what the store had lost.`,
		Example: `  quotactl ledger youtube/key1
  quotactl ledger youtube/key1 --since 30d --by day --timezone America/Los_Angeles
  quotactl ledger youtube/key1 --since 30d --by day --job nightly
  quotactl ledger youtube/key1 --since 24h --by limit
  quotactl ledger youtube/key1 --by region --since 6h --json`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("since") && since < time.Second {
				return usage("--since %s: use 1s or more, or leave it out for the whole ledger", since)
			}
			group := budget.GroupBy(by)
			switch group {
			case budget.ByOperation, budget.ByJob, budget.ByRegion, budget.ByRun:
			case budget.ByHour, budget.ByDay, budget.ByLimit:
				if since == 0 {
					return usage("--by %s: write how far back too: --since 7d", by)
				}
			default:
				return usage("--by %q: use one of operation, job, region, run, hour, day and limit; the days of one job are --by day --job NAME", by)
			}
			days, err := schedule.LoadZone(zone)
			if err != nil {
				return usage("--timezone: %s", err)
			}
			if group != budget.ByHour && group != budget.ByDay && cmd.Flags().Changed("timezone") {
				return usage("--timezone is for --by hour and --by day")
			}
			switch ofJob := cmd.Flags().Changed("job"); {
			case ofJob && (since == 0 || group == budget.ByJob || group == budget.ByRun):
				return usage("--job is for the history, by operation, region, hour, day or limit: write --since 7d --by day")
			case ofJob && !driver.ValidName(job):
				return usage("--job %q: name one job", job)
			case since > 0 && group != budget.ByRun:
				return a.history(cmd.Context(), args[0], job, group, since, days, asJSON)
			}
			return a.ledger(cmd.Context(), args[0], group, since, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "operation", "sum by `GROUP`: operation, job, region or run; with --since also hour, day or limit")
	flags.StringVar(&zone, "timezone", "UTC", "the `ZONE` of the days and hours")
	flags.StringVar(&job, "job", "", "with --since, what was charged for one `JOB` (else for all)")
	spanVar(flags, &since, "since", 0, "the history of the last `SPAN`, from a whole hour on (else the ledger)")
	a.sandboxFlag(cmd)
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func (a *app) ledger(ctx context.Context, name string, by budget.GroupBy, since time.Duration, asJSON bool) error {
	var spent budget.Spent
	var status budget.Status
	err := a.onBudget(ctx, name, func(ctx context.Context, b *budget.Budget) (err error) {
		defer a.reading("reading the ledger")()
		if spent, err = b.Spent(ctx, by, since); err == nil && since == 0 {
			status, err = b.Status(ctx)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.stdout, answer.NewLedger(spent, status.Limits))
	}
	return writeText(a.stdout, view.Ledger(a.screen(), spent, status.Limits))
}

// history shows the history of all charges, or of one job's if a name is given.
func (a *app) history(ctx context.Context, name, job string, by budget.GroupBy, since time.Duration, zone *time.Location, asJSON bool) error {
	var h budget.History
	err := a.onStore(ctx, name, func(ctx context.Context, cfg *config.Config, store open.Backend) error {
		a.warnOfJob(cfg, job)
		defer a.reading("reading the history")()
		b, err := a.budget(cfg, store, name)
		switch {
		case err != nil:
			return err
		case driver.KeptOf(name, cfg.Store.History, cfg.Store.NoHistory) < 0:
			return usage("%s has no history: its upstream has history = \"0\" in %s; without --since this shows what the ledger holds", name, a.configPath)
		case job != "":
			h, err = b.JobHistory(ctx, job, by, since, zone)
		default:
			h, err = b.History(ctx, by, since, zone)
		}
		return err
	})
	if err != nil {
		return err
	}
	found := answer.NewHistory(h, zone)
	found.Job = job
	if asJSON {
		return writeJSON(a.stdout, found)
	}
	return writeText(a.stdout, view.History(a.screen(), found))
}
