package jobs

import (
	"slices"
	"time"
)

// Outcome is what became of a run or a pass.
type Outcome string

// The outcomes. Exhausted and Skipped are no failures.
const (
	Succeeded Outcome = "succeeded"
	// Exhausted: a charge did not fit within the wait that is allowed. On a
	// run without pages: what it needs did not fit, and it was not started.
	Exhausted Outcome = "exhausted"
	Failed    Outcome = "failed"
	TimedOut  Outcome = "timed_out"
	// Skipped: not started, or cut at a page boundary, because others were
	// exhausted, the daemon drains, or the tick is another pass's.
	Skipped Outcome = "skipped"
	// Lost: another pass took the overlap mark meanwhile.
	Lost Outcome = "lost"
)

// The reasons that stand beside an outcome; a failed status is "status 403", a
// command's "exit 3" or "signal killed", an exhausted one's "exit 75".
const (
	ReasonLimit       = "limit"       // exhausted: a limit of the budget
	ReasonUpstream    = "upstream"    // exhausted: the upstream refuses, or has locked the budget, or a person has
	ReasonExhausted   = "exhausted"   // skipped: a region before it was exhausted
	ReasonOverlap     = "overlap"     // skipped or lost: another pass holds the mark
	ReasonTaken       = "taken"       // skipped: a pass of this tick, or a later one, began before
	ReasonDrained     = "drained"     // skipped: the daemon was told to stop
	ReasonInterrupted = "interrupted" // skipped: the daemon was told to stop at once
	ReasonTimeout     = "timeout"     // timed out: the run's own timeout
	ReasonStore       = "store"       // failed: the store did not or could not answer
	ReasonClock       = "clock"       // failed: the store's clock and this machine's do not agree
	ReasonNeverFits   = "never_fits"  // failed: a call can never fit
	ReasonCharge      = "charge"      // failed: the charge itself is wrong
	ReasonSecret      = "secret"      // failed: the credential's secret is missing
	ReasonNetwork     = "network"     // failed: no answer, or not all of it
	ReasonBody        = "body"        // failed: an answer that is not what the job expects
	ReasonOutput      = "output"      // failed: the file could not be written
	ReasonCommand     = "command"     // failed: the command could not be started
	ReasonTick        = "tick"        // failed: no second is free for a manual pass
)

// severity is the order in which a pass takes its outcome from its runs, the
// most telling first.
var severity = []Outcome{Lost, Failed, TimedOut, Exhausted, Skipped, Succeeded}

// Instant is a time that stands in JSON as RFC 3339, UTC, with microseconds.
type Instant struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + InstantFormat + `"`)), nil
}

// InstantFormat is how an instant, in UTC, stands in JSON and logs: RFC 3339
// with microseconds.
const InstantFormat = "2006-01-02T15:04:05.000000Z"

// Record is what became of a pass. Its JSON is what a [State] keeps as the
// job's last pass.
type Record struct {
	Tick Instant `json:"tick"`
	// Outcome is the most telling of the runs', and Reason that run's.
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	// Units are those charged, whatever became of the calls.
	Units int64 `json:"units"`
	// Error says what kept the pass from beginning; empty when it began.
	Error string `json:"error"`
	Runs  []Run  `json:"runs"` // in the order of the pass
}

// Run is what became of one region.
type Run struct {
	Region  string  `json:"region"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	Units   int64   `json:"units"` // charged
	Calls   int     `json:"calls"` // charged, one for each request
	Pages   int     `json:"pages"` // fetched whole
	// Output is the file: the final one, or what was kept of a run that was
	// cut, named .partial; empty when there is none.
	Output string `json:"output"`
	Error  string `json:"error"`
}

// Pass is one pass of a job.
type Pass struct {
	Job string `json:"job"`
	Record
}

// conclude sums the runs up.
func (r *Record) conclude() {
	r.Units, r.Outcome, r.Reason = 0, Succeeded, ""
	for _, run := range r.Runs {
		r.Units += run.Units
		if slices.Index(severity, run.Outcome) < slices.Index(severity, r.Outcome) {
			r.Outcome, r.Reason = run.Outcome, run.Reason
		}
	}
}
