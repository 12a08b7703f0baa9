package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/ledgerfile"
)

func newExportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export BUDGET",
		Short: "Write a budget's whole ledger to standard output",
		Long: `Write a budget's whole ledger to standard output, as JSON lines: every charge
with its id, time and labels, open reservations and locks. quotactl import adds
the file to another store.

The export changes nothing. Stop what charges the budget first: a charge made
during the export may be missing from it.`,
		Example: `  quotactl export youtube/key1 > key1.jsonl
  quotactl export youtube/key1 | gzip > key1.jsonl.gz`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onStore(cmd.Context(), args[0], func(ctx context.Context, _ *config.Config, store open.Backend) error {
				facts, err := ledgerfile.Export(ctx, store, args[0], a.now(), a.stdout)
				switch {
				case err != nil:
				case facts.Head.Ledger != "":
					a.logger().Info("exported", "budget", args[0], "rows", facts.Rows, "history", facts.History)
				case facts.History > 0:
					a.logger().Info("exported the history alone: the store has no ledger of this budget", "budget", args[0], "hours", facts.History)
				default:
					a.logger().Warn("exported nothing: the store has no ledger of this budget; check --store", "budget", args[0])
				}
				return err
			})
		},
	}
	a.sandboxFlag(cmd)
	return cmd
}

// importAnswer is the JSON answer of import.
type importAnswer struct {
	Budget  string `json:"budget"`
	Rows    int64  `json:"rows"`
	Added   int64  `json:"added"`
	Before  int64  `json:"imported_before"`
	Known   int64  `json:"known"`
	Gone    int64  `json:"expired"`
	History int64  `json:"history"` // rows of the history, in none of the numbers above
}

func newImportCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Add an exported ledger to this store",
		Long: `Add a ledger that quotactl export wrote to the ledger of the same budget in this
store. The file is checked to its end before anything is imported.

A charge that the ledger already has, by its id, is not added again. Importing
the same file twice adds nothing, and an import that was interrupted is resumed
by running it again. Charges of more than an hour ago may be merged and have no
ids: import them from one export only, or they count twice. The budget may be
charged meanwhile, but until the import is complete, not all rows of the file
count: lock the budget, or stop what charges it. HISTORY counts the rows in
the file of what was spent in each hour; those of a history that this store has
already are not added again.`,
		Example: `  quotactl export youtube/key1 > key1.jsonl
  quotactl import key1.jsonl --store redis://redis.internal:6379/0
  gunzip -c key1.jsonl.gz | quotactl import /dev/stdin`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := a.importFile(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(a.stdout, importAnswer{result.Budget, result.Rows, result.Added, result.Before, result.Known, result.Gone, result.History})
			}
			t := a.screen().Table("BUDGET", ">ROWS", ">ADDED", ">IMPORTED BEFORE", ">KNOWN", ">EXPIRED", ">HISTORY")
			t.Add(result.Budget, a.screen().Number(result.Rows), a.screen().Number(result.Added), a.screen().Number(result.Before), a.screen().Number(result.Known), a.screen().Number(result.Gone), a.screen().Number(result.History))
			return t.Write(a.stdout)
		},
	}
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// importFile checks a file and imports it.
func (a *app) importFile(ctx context.Context, path string) (result ledgerfile.Result, err error) {
	f, err := ledgerfile.Open(path)
	if err != nil {
		return result, fmt.Errorf("import: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	facts, err := ledgerfile.Check(f)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return result, fmt.Errorf("import %s: %w", path, err)
	}
	err = a.onStore(ctx, facts.Budget, func(ctx context.Context, cfg *config.Config, store open.Backend) error {
		spec, err := cfg.Spec(facts.Budget)
		if err == nil {
			result, err = ledgerfile.Import(ctx, store, f, spec.Limits, a.now)
		}
		return err
	})
	return result, err
}
