package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// runsAnswer is the JSON answer of runs.
type runsAnswer struct {
	Runs []runRow `json:"runs"`
}

// runRow is what became of a run, or of a tick that no run was started for.
type runRow struct {
	Job  string       `json:"job"`
	Tick jobs.Instant `json:"tick"`
	// Until is the last of several ticks that were missed, and Ticks how many.
	Until   *jobs.Instant `json:"until,omitempty"`
	Ticks   int           `json:"ticks,omitempty"`
	Kind    jobs.Kind     `json:"kind"`
	Host    string        `json:"host,omitempty"`
	Request string        `json:"request,omitempty"`
	Note    string        `json:"note,omitempty"`
	Parts   int           `json:"parts,omitempty"` // of the pass, if it was deferred
	jobs.Run
	Took *seconds `json:"took_seconds"` // null for a run that has not ended, or was not started
}

// runsOf are the runs of a pass, or the tick where it has none.
func runsOf(pass jobs.Pass) []runRow {
	whole := runRow{
		Job: pass.Job, Tick: pass.Tick, Until: pass.Until, Ticks: pass.Ticks, Kind: pass.Kind,
		Host: pass.Host, Request: pass.Request, Note: pass.Note, Parts: pass.Parts,
	}
	if len(pass.Runs) == 0 {
		whole.Run = jobs.Run{
			Outcome: pass.Outcome, Reason: pass.Reason, Started: pass.Started, Ended: pass.Ended, Units: pass.Units, Error: pass.Error,
		}
		whole.took()
		return []runRow{whole}
	}
	list := make([]runRow, len(pass.Runs))
	for i, of := range pass.Runs {
		r := whole
		r.Run = of
		if of.Error == "" && of.Outcome == pass.Outcome { // what befell the pass befell the run
			r.Error = pass.Error
		}
		r.took()
		list[i] = r
	}
	return list
}

// took fills in how long it took.
func (r *runRow) took() {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return
	}
	d := seconds(r.Ended.Sub(r.Started.Time))
	r.Took = &d
}

// writeRuns shows runs as a table, with what is to be said of each below it. Of one
// job it is not said which, and there is room for the pages.
func writeRuns(w io.Writer, at time.Time, list []runRow, oneJob bool) error {
	if len(list) == 0 {
		return writeText(w, "there are no such runs\n")
	}
	heads := []string{"TICK", "JOB", "REGION", "OUTCOME", ">UNITS", ">TOOK"}
	if oneJob {
		heads = []string{"TICK", "REGION", "OUTCOME", ">UNITS", ">PAGES", ">TOOK"}
	}
	t := table.New(heads...)
	for i, r := range list {
		first := i == 0 || list[i-1].Job != r.Job || list[i-1].Tick != r.Tick
		r.addTo(t, at, oneJob, first)
	}
	return t.Write(w)
}

// addTo adds a run to a table of runs. The first run of a pass also says why the pass
// began.
func (r runRow) addTo(t *table.Table, at time.Time, oneJob, first bool) {
	outcome, units, pages, took := string(r.Outcome), "-", "-", "-"
	if r.Reason != "" {
		outcome += " (" + r.Reason + ")"
	}
	if !r.Started.IsZero() {
		units, pages = view.Number(r.Units), view.Number(int64(r.Pages))
		switch {
		case !r.Ended.IsZero():
			took = view.Roughly(max(0, r.Ended.Sub(r.Started.Time)))
		case r.Outcome == answer.Running: // when a lost run ended is unknown
			took = view.Roughly(max(0, at.Sub(r.Started.Time)))
		}
	}
	if r.Started.IsZero() && r.Units > 0 { // of a lost run the ledger alone knows
		units = view.Number(r.Units)
	}
	region := cmp.Or(r.Region, "-")
	if oneJob {
		t.Add(view.Time(r.Tick.Time), region, outcome, units, pages, took)
	} else {
		t.Add(view.Time(r.Tick.Time), r.Job, region, outcome, units, took)
	}
	if r.Until != nil {
		t.Below("", fmt.Sprintf("%s, until %s", view.Plural(r.Ticks, "tick"), view.Time(r.Until.Time)))
	}
	if why := beganText(r.Kind, r.Note); why != "" && first {
		t.Below("", view.Shown(why))
	}
	if r.Parts > 1 && first {
		t.Below("", fmt.Sprintf("deferred: it ran in %d parts", r.Parts))
	}
	if r.Error != "" {
		t.Below("", view.Shown(r.Error))
	}
	for _, line := range r.Log {
		t.Below("| ", view.Shown(line))
	}
}
