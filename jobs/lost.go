package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// reaped is what is known of a claim that may be taken for dead.
type reaped struct {
	// unfenced is why its pass could not be shut out of the budget; nil: it is.
	unfenced error
	// spent is what the ledger says that its runs spent, by their regions; nil: it does
	// not say.
	spent map[string]budget.SpentRow
}

// spentOf is what the ledger says of a pass that is shut out: nothing more comes to it.
func (j *Job) spentOf(ctx context.Context, from *budget.Budget, c claim, now time.Time, log *slog.Logger) map[string]budget.SpentRow {
	ctx, cancel := context.WithTimeout(ctx, spentWait)
	defer cancel()
	const skew = time.Minute // by which the clock of the pass's daemon may have been off
	spent, err := from.Spent(ctx, budget.ByRun, max(0, now.Sub(time.UnixMicro(c.Since)))+skew)
	if err != nil {
		log.Warn("what a lost pass spent after its last heartbeat is not known", "error", err)
		return nil
	}
	regions, found := j.Regions, map[string]budget.SpentRow{}
	if asked := c.regions(); asked != nil {
		regions = asked
	}
	for _, region := range regions {
		label := j.runLabel(time.UnixMicro(c.Tick), region)
		for _, row := range spent.Rows {
			if row.Name == label {
				found[region] = row
			}
		}
	}
	return found
}

// addSpent ends the runs of a lost pass, as far as it is known of each: by the last
// heartbeat, and by what the ledger says was charged until the pass was shut out. Where
// the pass died before its first heartbeat its regions are in the order given.
func (j *Job) addSpent(record *Record, c *claim, order []string, spent map[string]budget.SpentRow) {
	if len(record.Runs) == 0 && spent != nil {
		if asked := c.regions(); asked != nil {
			order = asked
		}
		for _, region := range order {
			record.Runs = append(record.Runs, Run{Region: region})
		}
	}
	for i := range record.Runs {
		run := &record.Runs[i]
		row := spent[run.Region]
		begun := !run.Started.IsZero() || row.Calls > 0
		run.Units, run.Calls = max(run.Units, row.Units), max(run.Calls, int(row.Calls))
		switch {
		case run.Outcome != "":
		case begun:
			run.Outcome, run.Reason = Lost, ReasonCrashed
		default:
			run.Outcome, run.Reason = Skipped, ReasonCrashed
		}
	}
	record.conclude()
	record.Outcome, record.Reason = Lost, ReasonCrashed
}
