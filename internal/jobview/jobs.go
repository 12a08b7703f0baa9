package jobview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Jobs shows a table for each budget that the jobs spend, with its rate if that is among the
// statuses, with what the forecast says unless it is nil, and that no daemon lives.
func Jobs(on screen.Screen, at time.Time, daemons []jobs.Daemon, statuses []budget.Status, views []answer.Job, ahead *answer.Forecast) string {
	var budgets, parts []string
	tables := map[string]*table.Table{}
	for _, v := range views {
		if tables[v.Budget] == nil {
			budgets = append(budgets, v.Budget)
			tables[v.Budget] = on.Table("JOB", nextHead(on), "STATE", "LAST PASS", ">UNITS", "SCHEDULE")
			tables[v.Budget].Wraps = true
		}
		addJob(on, v, tables[v.Budget], at, ahead, len(daemons) > 0)
	}
	for _, name := range budgets {
		text := on.Wrap("", name)
		if i := slices.IndexFunc(statuses, func(b budget.Status) bool { return b.Budget == name }); i >= 0 {
			text = on.Wrap("", name+view.IfClosed(on, statuses[i])) + view.Ahead(on, statuses[i], 0)
		}
		parts = append(parts, text+view.ByPlan(on, ahead.Budget(name))+tables[name].String())
	}
	switch {
	case !Unstarted(views, daemons):
	case on.Terminal: // it matters most
		parts = append([]string{NoDaemon(on)}, parts...)
	default:
		parts = append(parts, on.Wrap("", "No daemon is running on this store. Start one: quotactl run"))
	}
	return strings.Join(parts, "\n")
}

// NoDaemon says that nothing will start the jobs' passes.
func NoDaemon(on screen.Screen) string {
	return on.Wrap(on.Bad("✗ "), "no daemon is running on this store, so the jobs' passes will not start; start one: quotactl run")
}

// addJob adds the job to a table of jobs.
func addJob(on screen.Screen, v answer.Job, t *table.Table, at time.Time, ahead *answer.Forecast, alive bool) {
	next, last, units := "-", "-", "-"
	switch {
	case v.NextTick.IsZero():
	case on.Terminal:
		next = on.Away(v.NextTick)
	default:
		next = view.Roughly(v.NextTick.Sub(at))
	}
	if v.LastPass != nil {
		when := v.LastPass.Ended
		if when.IsZero() {
			when = v.LastPass.Tick
		}
		ago := view.Roughly(max(0, at.Sub(when.Time)).Truncate(time.Second)) + " ago"
		if on.Terminal {
			ago = on.Away(when.Time)
		}
		last, units = fmt.Sprintf("%s %s", on.Outcome(string(v.LastPass.Outcome)), ago), number(on, v.LastPass.Units, v.LastPass.Unknown)
	}
	t.Add(v.Name, next, on.Outcome(v.State()), last, units, Schedule(v))
	for _, note := range slices.Concat(Now(on, v), view.Deferred(on, v, at), Waits(on, v)) {
		if note != notFollowed || alive || !on.Terminal { // a line above the jobs says that no daemon is running
			t.Below("", note)
		}
	}
	if v.LastPass != nil && v.LastPass.Unknown {
		t.Below("", "what its last pass spent is not known: quotactl runs "+v.Name+" says why")
	}
	if plan := ahead.Job(v.Name); plan != nil && plan.FirstCut != nil {
		t.Below("", view.JobByPlan(on, plan))
	}
	if v.Expected != nil {
		t.Below("", "units that a pass needs: "+view.Needs(v.Expected.Pass(nil))+Held(v.Hold))
	}
}

func nextHead(on screen.Screen) string {
	if on.Terminal {
		return "NEXT"
	}
	return "NEXT IN"
}

// Held says which needs a job holds; empty for none.
func Held(h jobs.Hold) string {
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
func Summary(on screen.Screen, list []answer.Job, at time.Time) *table.Table {
	t := on.Table("JOB", "BUDGET", "LAST PASS", "NEXT PASS")
	for _, job := range list {
		last, next := "-", on.Time(job.NextTick)
		if job.LastPass != nil {
			last = fmt.Sprintf("%s %s", on.Time(job.LastPass.Tick.Time), on.Outcome(string(job.LastPass.Outcome)))
		}
		if job.Pause != nil {
			next = on.Outcome("paused")
		}
		t.Add(job.Name, job.Budget, last, next)
		notes := slices.Concat(Now(on, job), view.Deferred(on, job, at))
		if job.StartedBy == jobs.StartedByCron {
			notes = append(notes, cron(on, job)...)
		}
		for _, note := range notes {
			t.Below("", note)
		}
	}
	return t
}
