package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
)

func newLedgerCommand(a *app) *cobra.Command {
	var by string
	var since time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ledger BUDGET",
		Short: "Show who spent what",
		Long: `Show what a budget's ledger holds, summed by operation, job, region or run, with
shares of the total. It reaches back as far as the budget's longest window.

drift/LIMIT is what the upstream counts in a limit and no charge explains.
recovered/LIMIT is what the store had lost.`,
		Example: `  quotactl ledger youtube/key1
  quotactl ledger youtube/key1 --by region --since 6h --json`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("since") && since < time.Second {
				return usage("--since %s: use 1s or more, or leave it out for the whole ledger", since)
			}
			switch budget.GroupBy(by) {
			case budget.ByOperation, budget.ByJob, budget.ByRegion, budget.ByRun:
			default:
				return usage("--by %q: use operation, job, region or run", by)
			}
			return a.ledger(cmd.Context(), args[0], budget.GroupBy(by), since, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&by, "by", "operation", "sum by `GROUP`: operation, job, region or run")
	spanVar(flags, &since, "since", 0, "only the last `SPAN` (else all)")
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func (a *app) ledger(ctx context.Context, name string, by budget.GroupBy, since time.Duration, asJSON bool) error {
	var spent budget.Spent
	err := a.onBudget(ctx, name, func(ctx context.Context, b *budget.Budget) (err error) {
		spent, err = b.Spent(ctx, by, since)
		return err
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.stdout, answer.NewLedger(spent))
	}
	return writeLedger(a.stdout, spent)
}

func writeLedger(w io.Writer, s budget.Spent) error {
	head := map[budget.GroupBy]string{budget.ByOperation: "OPERATION", budget.ByJob: "JOB", budget.ByRegion: "REGION", budget.ByRun: "RUN"}[s.By]
	heads := []string{head, ">UNITS", ">SHARE", ">CALLS", ">OPEN"}
	if s.Total.Observed > 0 {
		heads = append(heads, ">WOULD REFUSE")
	}
	t := newTable(heads...)
	add := func(name string, row budget.SpentRow) {
		cells := []string{name, number(row.Units), fmt.Sprintf("%.1f%%", 100*answer.Share(row, s.Total)), number(row.Calls), number(row.Open)}
		if s.Total.Observed > 0 {
			cells = append(cells, number(row.Observed))
		}
		t.add(cells...)
	}
	for _, row := range s.Rows {
		if row.Name == "" {
			row.Name = "-"
		}
		add(row.Name, row)
	}
	add("total", s.Total)
	over := "the whole ledger"
	if !s.From.IsZero() {
		over = "since " + showTime(s.From)
	}
	out := wrap("", s.Budget+", "+over) + t.String()
	if !s.Since.IsZero() {
		out += wrap("", "Charges up to "+showTime(s.Since)+" no longer count and are not included.")
	}
	return writeText(w, out)
}
