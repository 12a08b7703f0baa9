package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/serve"
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

Under drift/LIMIT stands what the upstream counts of a limit and no charge
explains, under recovered/LIMIT what the store had lost.`,
		Example: `  quotactl ledger youtube/key1
  quotactl ledger youtube/key1 --by region --since 6h --json`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("since") && since < time.Second {
				return usage("--since %s: use 1s or more, or leave it out for all that the ledger holds", since)
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
	spanVar(flags, &since, "since", 0, "only the last `SPAN` (else all that the ledger holds)")
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
		return writeJSON(a.stdout, newLedgerAnswer(spent))
	}
	return writeLedger(a.stdout, spent)
}

// ledgerAnswer is the JSON answer of ledger.
type ledgerAnswer struct {
	Budget string        `json:"budget"`
	By     string        `json:"by"`
	At     serve.Instant `json:"at"`
	From   serve.Instant `json:"from"`  // null for all that the ledger holds
	Since  serve.Instant `json:"since"` // what finished up to then is forgotten; null when nothing asked for is
	Rows   []spentJSON   `json:"rows"`
	Total  spentJSON     `json:"total"`
}

type spentJSON struct {
	Name  *string `json:"name,omitempty"` // empty for charges without the label
	Units int64   `json:"units"`
	Calls int64   `json:"calls"`
	Open  int64   `json:"open"`
	// Observed is how many of Calls would have been refused, but for observe mode.
	Observed int64   `json:"observed"`
	Share    float64 `json:"share"` // of all units, or of all calls when no units were spent
}

func newLedgerAnswer(s budget.Spent) ledgerAnswer {
	answer := ledgerAnswer{Budget: s.Budget, By: string(s.By), At: serve.Instant(s.At), From: serve.Instant(s.From), Since: serve.Instant(s.Since), Rows: []spentJSON{}}
	for _, row := range s.Rows {
		answer.Rows = append(answer.Rows, newSpentJSON(&row.Name, row, s.Total))
	}
	answer.Total = newSpentJSON(nil, s.Total, s.Total)
	return answer
}

func newSpentJSON(name *string, row, total budget.SpentRow) spentJSON {
	return spentJSON{name, row.Units, row.Calls, row.Open, row.Observed, share(row, total)}
}

// share is a row's part of the total, 0 to 1.
func share(row, total budget.SpentRow) float64 {
	switch {
	case total.Units > 0:
		return float64(row.Units) / float64(total.Units)
	case total.Calls > 0:
		return float64(row.Calls) / float64(total.Calls)
	}
	return 0
}

func writeLedger(w io.Writer, s budget.Spent) error {
	head := map[budget.GroupBy]string{budget.ByOperation: "OPERATION", budget.ByJob: "JOB", budget.ByRegion: "REGION", budget.ByRun: "RUN"}[s.By]
	heads := []string{head, ">UNITS", ">SHARE", ">CALLS", ">OPEN"}
	if s.Total.Observed > 0 {
		heads = append(heads, ">WOULD REFUSE")
	}
	t := newTable(heads...)
	add := func(name string, row budget.SpentRow) {
		cells := []string{name, number(row.Units), fmt.Sprintf("%.1f%%", 100*share(row, s.Total)), number(row.Calls), number(row.Open)}
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
	over := "all that the ledger holds"
	if !s.From.IsZero() {
		over = "since " + showTime(s.From)
	}
	out := wrap("", s.Budget+", "+over) + t.String()
	if !s.Since.IsZero() {
		out += wrap("", "What finished up to "+showTime(s.Since)+" counts nowhere any more and is not in it.")
	}
	if _, err := io.WriteString(w, out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
