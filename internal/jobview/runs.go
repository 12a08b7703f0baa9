package jobview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Runs shows runs as a table, with what is to be said of each below it. Of one
// job it is not said which, and there is room for the pages.
func Runs(on screen.Screen, at time.Time, list []answer.Run, oneJob bool) string {
	if len(list) == 0 {
		return "there are no such runs\n"
	}
	heads := []string{"TICK", "JOB", "REGION", "OUTCOME", ">UNITS", ">TOOK"}
	if oneJob {
		heads = []string{"TICK", "REGION", "OUTCOME", ">UNITS", ">PAGES", ">TOOK"}
	}
	t := on.Table(heads...)
	for i, r := range list {
		first := i == 0 || list[i-1].Job != r.Job || list[i-1].Tick != r.Tick
		addRun(on, t, r, at, oneJob, first)
		if r.LastSuccess != nil && !slices.ContainsFunc(list[:i], func(newer answer.Run) bool { return newer.Job == r.Job && newer.LastSuccess != nil }) {
			if r.Starved {
				t.Below("", "starved: without a complete pass for longer than its stale_after")
			}
			t.Below("", lastSuccessText(on, time.Time(*r.LastSuccess)))
		}
	}
	return t.String()
}

// addRun adds a run to a table of runs. The first run of a pass also says why the pass
// began.
func addRun(on screen.Screen, t *table.Table, r answer.Run, at time.Time, oneJob, first bool) {
	outcome, units, pages, took := string(r.Outcome), "-", "-", "-"
	if r.Starved && r.Outcome == jobs.Exhausted {
		outcome = "starved"
	}
	if r.Reason != "" {
		outcome += " (" + r.Reason + ")"
	}
	outcome = on.Outcome(outcome)
	if !r.Started.IsZero() {
		units, pages = number(on, r.Run.Units, r.Unknown), on.Number(int64(r.Pages))
		switch {
		case !r.Ended.IsZero():
			took = view.Roughly(max(0, r.Ended.Sub(r.Started.Time)))
		case r.Outcome == answer.Running: // when a lost run ended is unknown
			took = view.Roughly(max(0, at.Sub(r.Started.Time)))
		}
	}
	if r.Started.IsZero() && (r.Run.Units > 0 || r.Unknown) { // of a lost run the ledger alone knows
		units = number(on, r.Run.Units, r.Unknown)
	}
	region := cmp.Or(r.Region, "-")
	if oneJob {
		t.Add(on.Time(r.Tick.Time), region, outcome, units, pages, took)
	} else {
		t.Add(on.Time(r.Tick.Time), r.Job, region, outcome, units, took)
	}
	if r.Until != nil {
		t.Below("", fmt.Sprintf("%s, until %s", view.Plural(r.Ticks, "tick"), on.Time(r.Until.Time)))
	}
	if why := Began(r.Kind, r.Note); why != "" && first {
		t.Below("", view.Shown(why))
	}
	if r.Parts > 1 && first {
		t.Below("", fmt.Sprintf("deferred: it ran in %d parts", r.Parts))
	}
	if r.Error != "" {
		t.Below("", view.Shown(r.Error))
	}
	if r.Warning != "" {
		t.Below("", view.Shown(r.Warning))
	}
	for _, line := range r.Log {
		t.Below("| ", view.Shown(line))
	}
}

// lastSuccessText says how long a job that lacks units has had no complete pass.
func lastSuccessText(on screen.Screen, at time.Time) string {
	if at.IsZero() {
		return "no pass of all its regions has succeeded yet"
	}
	return "its last pass of all regions that succeeded ended at " + on.Time(at)
}
