package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// statusFlags are the flags of status.
type statusFlags struct {
	failUnder     string
	least         answer.Threshold // failUnder, read
	judge         bool             // by it
	sandbox, json bool
}

func newStatusCommand(a *app) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [BUDGET]",
		Short: "Show what is left in each budget, and when more returns",
		Long: `Show what is used and left in each limit, when more returns, and the last and
next pass of each job. This spends nothing.

--fail-under is for scripts: exit code 75, and a line on standard error for each
budget that has less left. What is left is the number beside the budget's name,
the least that a limit has left which counts units and covers every operation; a
percentage is that of this limit. A locked budget has nothing left.`,
		Example: `  quotactl status
  quotactl status --fail-under 10% >/dev/null
  quotactl status youtube/key1 --json`,
		ValidArgsFunction: a.completeBudget,
		Args:              arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if f.judge = cmd.Flags().Changed("fail-under"); f.judge {
				if f.least, err = answer.ParseThreshold(f.failUnder); err != nil {
					return usage("--fail-under %q: %w", f.failUnder, err)
				}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.status(ctx, args, f)
		},
	}
	cmd.Flags().BoolVar(&f.sandbox, "sandbox", false, "read the sandbox's store, sandbox.db beside the configuration")
	cmd.Flags().StringVar(&f.failUnder, "fail-under", "", "exit with 75 if less than `LEAST` is left: units, or a percentage of the limit")
	cmd.Flags().BoolVar(&f.json, "json", false, "answer in JSON")
	return cmd
}

// status shows the budgets named, or all, and their jobs.
func (a *app) status(ctx context.Context, names []string, f statusFlags) error {
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
	if f.sandbox {
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
	if f.json {
		err = writeJSON(a.stdout, seen.json())
	} else {
		err = writeText(a.stdout, seen.text())
	}
	if !f.judge {
		return err
	}
	return errors.Join(err, seen.under(f.least))
}

// under is an error, with exit code 75, that names each budget that has less left than the
// threshold. A budget that cannot be judged is an error too, since silence would look as if
// enough were left.
func (o overview) under(least answer.Threshold) error {
	var faults []error
	code := exitUsage
	for _, b := range o.budgets {
		text, err := least.Under(b)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("--fail-under cannot judge %s: %w; name a budget that it can judge", b.Budget, err))
		case text != "":
			faults, code = append(faults, errors.New(text)), exitExhausted
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &exitError{code: code, err: errors.Join(faults...)}
}

// overview is what status shows.
type overview struct {
	at      time.Time
	store   string // redacted
	budgets []budget.Status
	jobs    []answer.Job
	ahead   *answer.Forecast // nil: there is none
	alerts  []alert.Health
}

func (o overview) json() answer.Overview {
	return answer.NewOverview(o.at, o.store, o.budgets, o.jobs, o.alerts, o.ahead)
}

// text shows the overview as tables.
func (o overview) text() string {
	var parts []string
	for _, b := range o.budgets {
		parts = append(parts, view.Budget(b, o.ahead.Budget(b.Budget)))
	}
	if len(o.jobs) > 0 {
		parts = append(parts, jobview.Summary(o.jobs, o.at).String())
	}
	if lines := alert.Lines(o.alerts); lines != "" {
		parts = append(parts, lines)
	}
	return strings.Join(parts, "\n")
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
		status, err := b.Rated(ctx)
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
	seen.ahead = a.forecast(ctx, cfg, store, list, a.now().Add(defaultPlan))
	return seen, nil
}
