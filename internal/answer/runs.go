package answer

import "github.com/quotactl/quotactl/jobs"

// Runs is the JSON answer of runs.
type Runs struct {
	Runs []Run `json:"runs"`
}

// Run is what became of a run, or of a tick that no run was started for.
type Run struct {
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
	Took *Seconds `json:"took_seconds"` // null for a run that has not ended, or was not started
}

// RunsOf are the runs of a pass, or the tick where it has none.
func RunsOf(pass jobs.Pass) []Run {
	whole := Run{
		Job: pass.Job, Tick: pass.Tick, Until: pass.Until, Ticks: pass.Ticks, Kind: pass.Kind,
		Host: pass.Host, Request: pass.Request, Note: pass.Note, Parts: pass.Parts,
	}
	if len(pass.Runs) == 0 {
		whole.Run = jobs.Run{
			Outcome: pass.Outcome, Reason: pass.Reason, Started: pass.Started, Ended: pass.Ended, Units: pass.Units, Error: pass.Error,
		}
		whole.took()
		return []Run{whole}
	}
	list := make([]Run, len(pass.Runs))
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
func (r *Run) took() {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return
	}
	d := Seconds(r.Ended.Sub(r.Started.Time))
	r.Took = &d
}
