package plan

import (
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Row is what a ledger's entry counts.
type Row struct {
	Operation, Job string
	Units, Calls   int64
	Score          int64 // when it finished, µs; of an open reservation, the end of its lease
	Open           bool
	// Began is when an open reservation of a pass under way was made, µs: it finishes once its
	// call is answered. 0: it is none.
	Began int64
}

// RunSpent is what a run under way has spent.
type RunSpent struct {
	Amounts []needs.Amount
	// Began is when the call was made that is not yet answered, µs; 0: there is none.
	Began int64
}

// rows collects a ledger's rows, and what the passes under way have spent.
type rows struct {
	list    []Row
	names   map[string]string // each text once: there may be a million rows
	working []*working
	since   int64 // when the first of them began; limit.Never: there are none
}

// working is a pass under way.
type working struct {
	of    *Job
	tick  string // as in the labels of its runs
	since int64
	spent map[string]RunSpent
}

// passesOf are the passes under way of the jobs of a budget, in the order of [Job.Spent].
func passesOf(list []Job, budget string) (all []*working) {
	for i := range list {
		one := &list[i]
		if one.Budget != budget {
			continue
		}
		for _, active := range one.Active {
			all = append(all, &working{one, "/" + active.Tick.UTC().Format(jobs.TickFormat), active.Since.UnixMicro(), map[string]RunSpent{}})
		}
	}
	return all
}

func newRows(all []*working) *rows {
	r := &rows{names: map[string]string{}, working: all, since: limit.Never}
	for _, w := range all {
		r.since = min(r.since, w.since)
	}
	return r
}

// Head implements driver.LedgerWriter. If entries moved meanwhile, one may be missing or
// come twice; a plan is of the next hours, and no decision.
func (r *rows) Head(driver.LedgerHead) error { return nil }

// Row implements driver.LedgerWriter.
func (r *rows) Row(row driver.Row) error {
	if row.State == driver.RowReleased {
		return nil
	}
	job := row.Labels.Job
	if row.Pseudo() {
		job = ""
	}
	one := Row{r.name(row.Operation), r.name(job), row.Units, row.Calls, row.Score, row.State == driver.RowOpen, 0}
	if row.Start >= r.since && r.note(&row) && one.Open {
		one.Began = row.Start
	}
	r.list = append(r.list, one)
	return nil
}

// note notes what a run of a pass under way was charged.
func (r *rows) note(row *driver.Row) bool {
	for _, w := range r.working {
		if row.Labels.Job == w.of.Name && row.Start >= w.since && strings.Contains(row.Labels.Run, w.tick) {
			run := w.spent[row.Labels.Region]
			run.Amounts = needs.Together(append(run.Amounts, needs.Amount{Operation: row.Operation, Units: row.Units, Calls: row.Calls}))
			if row.State == driver.RowOpen {
				run.Began = row.Start
			}
			w.spent[row.Labels.Region] = run
			return true
		}
	}
	return false
}

func (r *rows) name(text string) string {
	same, known := r.names[text]
	if !known {
		r.names[text], same = text, text
	}
	return same
}
