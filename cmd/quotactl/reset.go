package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
)

// resetAnswer is the JSON answer of reset and clock accept.
type resetAnswer struct {
	Budget   string `json:"budget"`
	Reset    bool   `json:"reset,omitempty"`
	Accepted bool   `json:"accepted,omitempty"`
}

func newResetCommand(a *app) *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "reset BUDGET --yes",
		Short: "Forget everything charged to a budget",
		Long: `Forget everything that was charged to a budget: it starts again with all of its
units, and no host reports the old charges as lost. The history stays
(quotactl ledger --since), and the upstream does not forget. Use this when the ledger is known to be wrong, as after a test, or when
it is damaged and its longest window has passed.`,
		Example:           `  quotactl reset shop/main --yes`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usage("reset %s forgets everything charged to it: confirm with --yes", args[0])
			}
			err := a.onStore(cmd.Context(), args[0], func(ctx context.Context, _ *config.Config, store open.Backend) error {
				_, err := driver.Apply(ctx, store, driver.Reset{Budget: args[0]})
				return err
			})
			return a.answerDone(err, resetAnswer{Budget: args[0], Reset: true}, "reset", asJSON)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm")
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func newClockCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clock",
		Short:   "Accept the store's clock",
		Example: `  quotactl clock accept shop/main`,
		Args:    arguments(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	accept := &cobra.Command{
		Use:   "accept BUDGET",
		Short: "Accept the store's clock for a budget",
		Long: `Accept the store's clock for a budget. If the store's clock is more than a
minute past everything that the budget has seen and past the caller's clock, it
is not trusted: nothing expires and calls fail until the clock is corrected or
accepted here. Charges that are older than a window by that clock then no longer
count, so make sure first that it is right.`,
		Example:           `  quotactl clock accept shop/main`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.onStore(cmd.Context(), args[0], func(ctx context.Context, _ *config.Config, store open.Backend) error {
				_, err := driver.Apply(ctx, store, driver.AcceptClock{Budget: args[0]})
				return err
			})
			return a.answerDone(err, resetAnswer{Budget: args[0], Accepted: true}, "the store's clock is accepted", asJSON)
		},
	}
	a.sandboxFlag(accept)
	accept.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	cmd.AddCommand(accept)
	return cmd
}

// onStore opens the store for one thing to do for a budget of the configuration.
func (a *app) onStore(ctx context.Context, name string, do func(context.Context, *config.Config, open.Backend) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg, _, err := a.loadConfig()
	if err != nil {
		return err
	}
	if _, err := cfg.Spec(name); err != nil {
		return err
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, cfg, store), store.Close())
}

// answerDone says that something was done for a budget.
func (a *app) answerDone(err error, answer resetAnswer, did string, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.stdout, answer)
	}
	t := a.screen().Table("BUDGET", "DONE")
	t.Add(answer.Budget, did)
	return t.Write(a.stdout)
}
