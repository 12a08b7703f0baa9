package answer

import (
	"context"
	"slices"
	"time"

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
	Units *int64   `json:"units"`        // null: not known
	Took  *Seconds `json:"took_seconds"` // null for a run that has not ended, or was not started
	// LastSuccess is when the job's last successful pass of all regions ended, null before
	// the first. Only runs --errors has it, for runs that found too few units.
	LastSuccess *Instant `json:"last_success,omitempty"`
	// Starved: and the job had then had no complete pass for longer than its stale_after.
	Starved bool `json:"starved,omitempty"`
}

// RunsOf are the runs of a pass, or the tick where it has none.
func RunsOf(pass jobs.Pass) []Run {
	whole := Run{
		Job: pass.Job, Tick: pass.Tick, Until: pass.Until, Ticks: pass.Ticks, Kind: pass.Kind,
		Host: pass.Host, Request: pass.Request, Note: pass.Note, Parts: pass.Parts,
	}
	if len(pass.Runs) == 0 {
		whole.Run = jobs.Run{
			Outcome: pass.Outcome, Reason: pass.Reason, Started: pass.Started, Ended: pass.Ended, Error: pass.Error,
		}
		whole.Units = known(pass.Units, pass.Unknown)
		whole.took()
		return []Run{whole}
	}
	list := make([]Run, len(pass.Runs))
	for i, of := range pass.Runs {
		r := whole
		r.Run, r.Units = of, known(of.Units, of.Unknown)
		if of.Error == "" && of.Outcome == pass.Outcome { // what befell the pass befell the run
			r.Error = pass.Error
		}
		r.took()
		list[i] = r
	}
	return list
}

// known is a number of units; nil if it is not known.
func known(units int64, unknown bool) *int64 {
	if unknown {
		return nil
	}
	return &units
}

// Pass is a pass as run --once shows it.
type Pass struct {
	jobs.Pass
	Units *int64    `json:"units"` // null: not known
	Runs  []PassRun `json:"runs"`
}

// PassRun is a run of a pass.
type PassRun struct {
	jobs.Run
	Units *int64 `json:"units"` // null: not known
}

// Passes are passes with their runs.
func Passes(list []jobs.Pass) []Pass {
	passes := make([]Pass, len(list))
	for i, pass := range list {
		passes[i] = Pass{Pass: pass, Units: known(pass.Units, pass.Unknown), Runs: make([]PassRun, len(pass.Runs))}
		for place, run := range pass.Runs {
			passes[i].Runs[place] = PassRun{run, known(run.Units, run.Unknown)}
		}
	}
	return passes
}

// took fills in how long it took.
func (r *Run) took() {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return
	}
	d := Seconds(r.Ended.Sub(r.Started.Time))
	r.Took = &d
}

// Starving finds out which runs left jobs starved, since the last pass of each that was complete.
type Starving struct {
	State jobs.State
	Views []Job // of the jobs
	fed   map[string]bool
}

// Look completes a run that found too few units. Runs are given the newest first.
func (s *Starving) Look(ctx context.Context, r *Run) error {
	i := slices.IndexFunc(s.Views, func(v Job) bool { return v.Name == r.Job })
	if i < 0 || !WantedUnits(r.Run) {
		return nil
	}
	job := s.Views[i]
	last := Instant(job.LastSuccess)
	r.LastSuccess = &last
	since := r.Tick.Add(-job.StaleAfter)
	switch {
	case job.StaleAfter == 0 || s.fed[r.Job]:
		return nil
	case !job.LastSuccess.IsZero():
		r.Starved = job.LastSuccess.Before(since)
	default: // never: then since its first pass
		earlier, err := jobs.History(ctx, s.State, r.Job, time.Time{}, since, 1)
		if err != nil {
			return err
		}
		r.Starved = len(earlier) > 0
	}
	if !r.Starved { // and what was before the last complete pass is over
		if s.fed == nil {
			s.fed = map[string]bool{}
		}
		s.fed[r.Job] = true
	}
	return nil
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
