package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/jobs"
)

func newStatusCommand(a *app) *cobra.Command {
	var inSandbox, asJSON bool
	cmd := &cobra.Command{
		Use:   "status [BUDGET]",
		Short: "Show what is left in each budget, and when more returns",
		Long: `Show what is used and left in each limit, when more returns, and the last and
next pass of each job. This spends nothing.`,
		Example: `  quotactl status
  quotactl status youtube/key1 --json`,
		ValidArgsFunction: a.completeBudget,
		Args:              arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.status(ctx, args, inSandbox, asJSON)
		},
	}
	cmd.Flags().BoolVar(&inSandbox, "sandbox", false, "read the sandbox's store, sandbox.db beside the configuration")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// status shows the budgets named, or all, and their jobs.
func (a *app) status(ctx context.Context, names []string, inSandbox, asJSON bool) error {
	cfg, list, err := a.loadConfig()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = cfg.Budgets()
		for _, job := range list { // a credential "*" does not name its budgets
			if !slices.Contains(names, job.Budget) {
				names = append(names, job.Budget)
			}
		}
	} else if _, err := cfg.Spec(names[0]); err != nil {
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
	seen, err := a.look(ctx, cfg, store, names, list)
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.stdout, seen.json())
	}
	return seen.write(a.stdout)
}

// overview is what status shows.
type overview struct {
	at      time.Time
	store   string // redacted
	budgets []budget.Status
	jobs    []answer.Job
	alerts  []alert.Health
}

func (o overview) json() answer.Overview {
	return answer.NewOverview(o.at, o.store, o.budgets, o.jobs, o.alerts)
}

// look reads the budgets and the jobs that spend them.
func (a *app) look(ctx context.Context, cfg *config.Config, store open.Backend, names []string, list []*jobs.Job) (overview, error) {
	seen := overview{at: a.now().UTC(), store: secret.RedactURL(a.storeAt(cfg))}
	shown := map[string]bool{}
	for _, name := range names {
		b, err := a.budget(cfg, store, name)
		if err != nil {
			return overview{}, err
		}
		status, err := b.Status(ctx)
		if err != nil {
			return overview{}, err
		}
		seen.budgets = append(seen.budgets, status)
		seen.at, shown[name] = status.At, true
	}
	list = slices.DeleteFunc(slices.Clone(list), func(job *jobs.Job) bool { return !shown[job.Budget] })
	var err error
	if seen.jobs, err = answer.LookAtJobs(ctx, a.now(), store, list); err != nil {
		return overview{}, err
	}
	if seen.alerts, err = alert.Look(ctx, store, cfg.Alerts); err != nil {
		return overview{}, err
	}
	return seen, nil
}
