package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/view"
)

func newSettleCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settle BUDGET ID UNITS",
		Short: "Record the actual cost of a reserved call",
		Long: `Record the actual cost of a call that was charged with --reserve. It may be
above what was reserved, and a fraction is rounded up. Settling again with the
same cost changes nothing; another cost is a conflict (exit code 1).`,
		Example: `  id=$(quotactl charge shop/main orders.export --reserve 5m --print-id)
  quotactl settle shop/main "$id" 37`,
		Args:              arguments(cobra.ExactArgs(3)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			units, err := limit.ParseUnits(args[2])
			if err != nil {
				return usage("units %q: %w: use a number from 0 to %d", args[2], err, limit.MaxUnits)
			}
			return a.endReservation(cmd.Context(), answer.Finish{Budget: args[0], ID: args[1], Units: &units, Settled: true}, asJSON)
		},
	}
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func newReleaseCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "release BUDGET ID",
		Short: "Give back the units of a reserved call that was never sent",
		Long: `Give back the units of a call that was charged with --reserve and never sent.
After its lease the call counts as sent, and releasing it fails (exit code 1).`,
		Example:           `  quotactl release shop/main 6GWTVXA3CHTQK5ZVCJZJXGV4VT`,
		Args:              arguments(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.endReservation(cmd.Context(), answer.Finish{Budget: args[0], ID: args[1], Released: true}, asJSON)
		},
	}
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// endReservation settles or releases, and says so.
func (a *app) endReservation(ctx context.Context, what answer.Finish, asJSON bool) error {
	err := a.onBudget(ctx, what.Budget, func(ctx context.Context, b *budget.Budget) error {
		if what.Released {
			return b.Release(ctx, what.ID)
		}
		return b.Settle(ctx, what.ID, *what.Units)
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.stdout, what)
	}
	did := "released"
	if what.Settled {
		did = fmt.Sprintf("settled at %s", view.Plural(int(*what.Units), "unit"))
	}
	t := a.screen().Table("BUDGET", "ID", "DONE")
	t.Add(what.Budget, what.ID, did)
	return t.Write(a.stdout)
}

// onBudget opens a budget for one thing to do on it.
func (a *app) onBudget(ctx context.Context, name string, do func(context.Context, *budget.Budget) error) error {
	return a.onStore(ctx, name, func(ctx context.Context, cfg *config.Config, store open.Backend) error {
		b, err := a.budget(cfg, store, name)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, b), b.Close())
	})
}
