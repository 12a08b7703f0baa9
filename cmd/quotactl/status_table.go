package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
)

// write shows the overview as tables.
func (o overview) write(w io.Writer) error {
	var parts []string
	for _, b := range o.budgets {
		parts = append(parts, view.Budget(b))
	}
	if len(o.jobs) > 0 {
		parts = append(parts, jobTable(o.jobs, o.at).String())
	}
	if lines := alert.Lines(o.alerts); lines != "" {
		parts = append(parts, lines)
	}
	return writeText(w, strings.Join(parts, "\n"))
}

// jobTable has a row for each job. The pass under way, who paused the job, and what is
// deferred are below it.
func jobTable(list []answer.Job, at time.Time) *table.Table {
	t := table.New("JOB", "BUDGET", "LAST PASS", "NEXT PASS")
	for _, job := range list {
		last, next := "-", view.Time(job.NextTick)
		if job.LastPass != nil {
			last = fmt.Sprintf("%s %s", view.Time(job.LastPass.Tick.Time), job.LastPass.Outcome)
		}
		if job.Pause != nil {
			next = "paused"
		}
		t.Add(job.Name, job.Budget, last, next)
		for _, note := range slices.Concat(nowNotes(job), view.Deferred(job, at)) {
			t.Below("", note)
		}
	}
	return t
}
