package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
)

// statusFlags are the flags of status.
type statusFlags struct {
	failUnder string
	least     answer.Threshold // failUnder, read
	judge     bool             // by it
	all       bool             // every limit and note, also on a terminal
	json      bool
	watchFlags
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
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.status(ctx, args, f)
		},
	}
	a.sandboxFlag(cmd)
	f.add(cmd)
	verboseFlag(cmd, &f.all)
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
	if len(names) > 0 {
		if _, err := cfg.Spec(names[0]); err != nil {
			return err
		}
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	reader := a.reader(cfg, list, store)
	if len(names) == 0 {
		names = reader.Budgets()
	}
	if f.watch {
		err := a.watch(ctx, f.watchFlags, f.json, func(ctx context.Context) (watched, error) {
			seen, err := reader.Overview(ctx, names)
			return watched{
				text: func(on screen.Screen) string { return onOneScreen(on, seen, f.all) }, json: seen.JSON(), lines: statusLines(seen),
			}, err
		})
		return errors.Join(err, store.Close())
	}
	read := a.reading("reading the store")
	seen, err := reader.Overview(ctx, names)
	read()
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	if f.json {
		err = writeJSON(a.stdout, seen.JSON())
	} else {
		err = writeText(a.stdout, statusText(a.screen(), seen, f.all))
	}
	if !f.judge {
		return err
	}
	return errors.Join(err, under(seen.Budgets, f.least))
}

// under is an error, with exit code 75, that names each budget that has less left than the
// threshold. A budget that cannot be judged is an error too, since silence would look as if
// enough were left.
func under(budgets []budget.Status, least answer.Threshold) error {
	var faults []error
	code := exitUsage
	for _, b := range budgets {
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

// statusText shows the overview: on a terminal at a glance, else as tables.
func statusText(on screen.Screen, o look.Overview, all bool) string {
	var parts []string
	for _, b := range o.Budgets {
		if on.Terminal {
			parts = append(parts, view.Glance(on, b, o.Ahead.Budget(b.Budget), all))
			continue
		}
		parts = append(parts, view.Budget(on, b, o.Ahead.Budget(b.Budget)))
	}
	if len(o.Jobs) > 0 {
		parts = append(parts, jobview.Summary(on, o.Jobs, o.At).String())
	}
	if lines := alert.Lines(o.Alerts); lines != "" {
		parts = append(parts, lines)
	}
	if on.Terminal {
		parts = append(parts, view.AsOf(on, o.At, o.Store))
	}
	return strings.Join(parts, "\n")
}

// onOneScreen shows the overview on one screen if it fits there with fewer limits of each budget.
func onOneScreen(on screen.Screen, o look.Overview, all bool) string {
	text, smaller := statusText(on, o, all), on
	for !all && strings.Count(text, "\n") >= on.Height && smaller.Height > 1 {
		smaller.Height--
		text = statusText(smaller, o, all)
	}
	return text
}

// statusLines are what a watch tells a pipe of.
func statusLines(o look.Overview) (list []watchedLine) {
	for _, b := range o.Budgets {
		list = append(list, watchedLine{b.Budget, view.Left(b)})
	}
	for _, job := range o.Jobs {
		list = append(list, watchedLine{"job " + job.Name, jobview.Brief(job)})
	}
	return list
}
