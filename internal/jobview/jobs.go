package jobview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Jobs shows a table for each budget that the jobs spend, with its rate if that is among the
// statuses, with what the forecast says unless it is nil, and that no daemon lives.
func Jobs(at time.Time, daemons []jobs.Daemon, statuses []budget.Status, views []answer.Job, ahead *answer.Forecast) string {
	var budgets, parts []string
	tables := map[string]*table.Table{}
	for _, v := range views {
		if tables[v.Budget] == nil {
			budgets = append(budgets, v.Budget)
			tables[v.Budget] = table.New("JOB", "NEXT IN", "STATE", "LAST PASS", ">UNITS", "SCHEDULE")
			tables[v.Budget].Wraps = true
		}
		addJob(v, tables[v.Budget], at, ahead)
	}
	for _, name := range budgets {
		text := table.Wrap("", name)
		if i := slices.IndexFunc(statuses, func(b budget.Status) bool { return b.Budget == name }); i >= 0 {
			text += view.Ahead(statuses[i])
		}
		parts = append(parts, text+view.ByPlan(ahead.Budget(name))+tables[name].String())
	}
	if len(daemons) == 0 {
		parts = append(parts, table.Wrap("", "No daemon is running on this store. Start one: quotactl run"))
	}
	return strings.Join(parts, "\n")
}

// addJob adds the job to a table of jobs.
func addJob(v answer.Job, t *table.Table, at time.Time, ahead *answer.Forecast) {
	next, last, units := "-", "-", "-"
	if !v.NextTick.IsZero() {
		next = view.Roughly(v.NextTick.Sub(at))
	}
	if v.LastPass != nil {
		when := v.LastPass.Ended
		if when.IsZero() {
			when = v.LastPass.Tick
		}
		last, units = fmt.Sprintf("%s %s ago", v.LastPass.Outcome, view.Roughly(max(0, at.Sub(when.Time)).Truncate(time.Second))), view.Number(v.LastPass.Units)
	}
	t.Add(v.Name, next, v.State(), last, units, v.Schedule.String()+" "+v.Schedule.Zone().String())
	for _, note := range slices.Concat(Now(v), view.Deferred(v, at), waitNotes(v)) {
		t.Below("", note)
	}
	if plan := ahead.Job(v.Name); plan != nil && plan.FirstCut != nil {
		t.Below("", view.JobByPlan(plan))
	}
	if v.Expected != nil {
		t.Below("", "units that a pass needs: "+view.Needs(v.Expected.Pass(nil))+heldNote(v.Hold))
	}
}

// heldNote says which needs a job holds; empty for none.
func heldNote(h jobs.Hold) string {
	switch h {
	case jobs.HoldPass:
		return ", held before it starts"
	case jobs.HoldRun:
		return ", held run by run"
	}
	return ""
}

// Summary has a row for each job. The pass under way, who paused the job, and what is
// deferred are below it.
func Summary(list []answer.Job, at time.Time) *table.Table {
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
		for _, note := range slices.Concat(Now(job), view.Deferred(job, at)) {
			t.Below("", note)
		}
	}
	return t
}
