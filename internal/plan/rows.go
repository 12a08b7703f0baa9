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
	// Working: it was made by a pass under way. If it is open, it finishes once the call is
	// answered.
	Working bool
}

// Spent is what the runs of a pass have spent, by region.
type Spent map[string][]needs.Amount

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
	spent Spent
}

// passesOf are the passes under way of the jobs of a budget, in the order of [Job.Spent].
func passesOf(list []Job, budget string) (all []*working) {
	for i := range list {
		one := &list[i]
		if one.Budget != budget {
			continue
		}
		for _, active := range one.Active {
			all = append(all, &working{one, "/" + active.Tick.UTC().Format(jobs.TickFormat), active.Since.UnixMicro(), Spent{}})
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
	one := Row{r.name(row.Operation), r.name(job), row.Units, row.Calls, row.Score, row.State == driver.RowOpen, false}
	if row.Start >= r.since {
		one.Working = r.note(&row)
	}
	r.list = append(r.list, one)
	return nil
}

// note notes what a run of a pass under way was charged.
func (r *rows) note(row *driver.Row) bool {
	for _, w := range r.working {
		if row.Labels.Job == w.of.Name && row.Start >= w.since && strings.Contains(row.Labels.Run, w.tick) {
			region := row.Labels.Region
			w.spent[region] = needs.Together(append(w.spent[region], needs.Amount{Operation: row.Operation, Units: row.Units, Calls: row.Calls}))
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
