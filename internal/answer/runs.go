package answer

import (
	"slices"

	"github.com/quotactl/quotactl/jobs"
)

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
	// LastSuccess is when the job's last successful pass of all regions ended, null before
	// the first. Only runs --errors has it, for runs that found too few units.
	LastSuccess *Instant `json:"last_success,omitempty"`
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

// WentWrong are the outcomes of runs that went wrong other than for want of units.
var WentWrong = []jobs.Outcome{jobs.Failed, jobs.TimedOut, jobs.Drained, jobs.Missed, jobs.Lost}

// WantedUnits reports whether a run ended, or was not started, because there were too few
// units.
func WantedUnits(run jobs.Run) bool {
	switch run.Outcome {
	case jobs.Exhausted:
		return true
	case jobs.Skipped:
		return slices.Contains([]string{jobs.ReasonExhausted, jobs.ReasonDeferred, jobs.ReasonNextTick, jobs.ReasonRemoved}, run.Reason)
	}
	return false
}
