package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/jobs/needs"
)

// Outcome says how a run or a pass ended.
type Outcome string

// The outcomes. Exhausted and Skipped are not failures.
const (
	Succeeded Outcome = "succeeded"
	// Exhausted: a charge did not fit within the allowed wait. If the run has no pages:
	// what it needs did not fit, and it was not started.
	Exhausted Outcome = "exhausted"
	Failed    Outcome = "failed"
	TimedOut  Outcome = "timed_out"
	// Drained: stopped by a drain or by a person after it had spent.
	Drained Outcome = "drained"
	// Skipped: not started, or stopped before it had spent, for example because others
	// were exhausted, the daemon drains, the job is paused, or another pass is under way.
	Skipped Outcome = "skipped"
	// Missed: no daemon took the tick in time, or cron did not start it.
	Missed Outcome = "missed"
	// Lost: its process stopped renewing the claim, and the pass was declared dead.
	Lost Outcome = "lost"
)

// Kind says why a pass began.
type Kind string

// The kinds of passes.
const (
	Scheduled Kind = "schedule" // its tick came
	Manual    Kind = "manual"   // run --once, run --now, or a run of quotactl meter that belongs to no tick
	Triggered Kind = "trigger"  // a person asked for it, through the store
	Queued    Kind = "queue"    // its tick came while another pass was under way
	CaughtUp  Kind = "catch_up" // its tick came while no daemon was running
)

// The reasons of outcomes. Besides these, a failed status is "status 403", a
// command's "exit 3" or "signal killed", an exhausted one's "exit 75".
const (
	ReasonLimit       = "limit"       // exhausted: a limit of the budget
	ReasonHold        = "hold"        // exhausted: what the pass or run needs cannot be held now; failed: it can never be held, or is not known
	ReasonRecovering  = "recovering"  // exhausted: the store lost data, and not all hosts have reported
	ReasonUpstream    = "upstream"    // exhausted: the upstream refused, or the upstream or a person locked the budget
	ReasonExhausted   = "exhausted"   // skipped: an earlier region was exhausted
	ReasonOverlap     = "overlap"     // skipped: another pass is under way
	ReasonPaused      = "paused"      // skipped: a person paused the job; also of a pass that was deferred
	ReasonDown        = "down"        // missed: no daemon took it in time
	ReasonNotStarted  = "not_started" // missed: cron, or whatever starts the job, did not run it in time
	ReasonLate        = "late"        // missed: it is past max_late; also of a pass that was deferred
	ReasonCatchUp     = "catch_up"    // missed: newer ticks are caught up instead
	ReasonCrashed     = "crashed"     // lost: its process stopped renewing the claim; skipped: not started before that
	ReasonFenced      = "fenced"      // lost: another daemon took it for dead
	ReasonUnchanged   = "unchanged"   // succeeded: the upstream has nothing new since an earlier file
	ReasonDrained     = "drained"     // skipped: the daemon was stopped
	ReasonStop        = "stop"        // drained: the daemon was stopped
	ReasonCancelled   = "cancelled"   // drained, skipped: a person cancelled the pass, or took back its request or its deferral
	ReasonInterrupted = "interrupted" // drained, skipped: the daemon was stopped without grace
	ReasonTimeout     = "timeout"     // timed out: the run's own timeout
	ReasonStore       = "store"       // failed: the store did not answer, or answered with an error
	ReasonClock       = "clock"       // failed: the store's clock and this machine's do not agree
	ReasonNeverFits   = "never_fits"  // failed: a call can never fit
	ReasonCharge      = "charge"      // failed: the charge itself is wrong
	ReasonSecret      = "secret"      // failed: the credential's secret is missing
	ReasonNetwork     = "network"     // failed: no response, or only part of it
	ReasonBody        = "body"        // failed: the response is not what the job expects
	ReasonOutput      = "output"      // failed: the file could not be written
	ReasonCommand     = "command"     // failed: the command could not be started
	ReasonTick        = "tick"        // failed: no second is free for a manual pass
	ReasonRegion      = "region"      // failed: the request names a region that the job no longer has
	ReasonDeferred    = "deferred"    // exhausted, skipped: goes on once the units return
	ReasonNextTick    = "next_tick"   // exhausted, skipped: was deferred, and the job's next tick came first
	ReasonRemoved     = "removed"     // exhausted, skipped: was deferred, and the configuration no longer has it
)

// severity orders the outcomes: a pass takes the first of these that one of its runs has.
var severity = []Outcome{Lost, Failed, TimedOut, Drained, Exhausted, Missed, Skipped, Succeeded}

// Instant is a time that JSON shows as RFC 3339, UTC, with microseconds.
type Instant struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + InstantFormat + `"`)), nil
}

// InstantFormat is the format of an instant, in UTC, in JSON and logs: RFC 3339 with
// microseconds.
const InstantFormat = "2006-01-02T15:04:05.000000Z"

// InstantOf converts µs since 1970 to an instant.
func InstantOf(micros int64) Instant { return Instant{time.UnixMicro(micros).UTC()} }

// maxHistory is how many records of a job are kept at most.
const maxHistory = 20_000

// Record says what happened to a tick, or to several for which no pass was started. A
// [State] keeps its JSON in the history.
type Record struct {
	Tick Instant `json:"tick"`
	// Until is the last of several ticks that were missed or skipped together, and Ticks
	// their number.
	Until *Instant `json:"until,omitempty"`
	Ticks int      `json:"ticks,omitempty"`
	Kind  Kind     `json:"kind"`
	// Outcome is the most severe outcome of the runs, and Reason is from the same run.
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	// Started and Ended are by the daemon's clock; zero if no pass began.
	Started Instant `json:"started,omitzero"`
	Ended   Instant `json:"ended,omitzero"`
	// Host is where it ran: "in process P on HOST".
	Host string `json:"host,omitempty"`
	// Units is the sum that was charged, even for calls that failed.
	Units int64 `json:"units"`
	// Unknown: what a run was charged is not known; Units is then the sum of the others.
	Unknown bool `json:"units_unknown,omitempty"`
	// Error says why the pass did not begin; empty if it began.
	Error string `json:"error"`
	// Parts is in how many parts it ran, if it was deferred; else 0.
	Parts int `json:"parts,omitempty"`
	// Request is the ID of its request, and Note says who asked and why.
	Request string `json:"request,omitempty"`
	Note    string `json:"note,omitempty"`
	Runs    []Run  `json:"runs"` // in the order of the pass
}

// Run says what happened to one region.
type Run struct {
	Region  string  `json:"region"`
	Outcome Outcome `json:"outcome"` // empty in the record of a pass under way
	Reason  string  `json:"reason"`
	// Started and Ended are zero if the run was not started.
	Started Instant `json:"started,omitzero"`
	Ended   Instant `json:"ended,omitzero"`
	Units   int64   `json:"units"` // that were charged
	Calls   int     `json:"calls"` // that were charged, one for each request
	// Unknown: what was charged is not known, or not all of it.
	Unknown bool `json:"units_unknown,omitempty"`
	// Spent is both by operation; nil if that is not known.
	Spent []needs.Amount `json:"spent,omitzero"`
	Pages int            `json:"pages"` // that this run fetched whole
	// Unchanged counts the pages that the upstream reported as unchanged.
	Unchanged int `json:"unchanged,omitempty"`
	// Attempts counts the attempts: 1 without retries.
	Attempts int `json:"attempts,omitempty"`
	// Resumed: it continued an interrupted run.
	Resumed bool `json:"resumed,omitempty"`
	// Output is the file: the final one, or the .partial file of an interrupted run;
	// empty if there is none.
	Output string `json:"output"`
	Error  string `json:"error"`
	// Warning says what may be wrong with a run that succeeded, or is not known of it.
	Warning string `json:"warning,omitempty"`
	// Log is its last lines.
	Log []string `json:"log,omitempty"`
}

// Pass is one pass of a job.
type Pass struct {
	Job string `json:"job"`
	Record
}

// spend fills in what the run was charged.
func (r *Run) spend(spent []needs.Amount) {
	r.Units, r.Calls, r.Spent = 0, 0, spent
	for _, a := range spent {
		r.Units += a.Units
		r.Calls += int(a.Calls)
	}
}

// spentNothing reports whether a run is known to have been charged nothing.
func (r *Run) spentNothing() bool { return r.Units == 0 && r.Calls == 0 && !r.Unknown }

// conclude sums up the runs.
func (r *Record) conclude() {
	r.Units, r.Unknown, r.Outcome, r.Reason = 0, false, Succeeded, ""
	for _, run := range r.Runs {
		r.Units, r.Unknown = r.Units+run.Units, r.Unknown || run.Unknown
		if slices.Index(severity, run.Outcome) < slices.Index(severity, r.Outcome) {
			r.Outcome, r.Reason = run.Outcome, run.Reason
		}
	}
}

// wasCut reports whether a run that began ended before it was complete, other than by a
// failure or its timeout, and does not go on by itself.
func (r *Run) wasCut() bool {
	return r.Outcome != Succeeded && r.Outcome != Failed && r.Outcome != TimedOut && r.Reason != ReasonDeferred
}

// brief is the record without the runs' logs.
func (r Record) brief() Record {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		r.Runs[i].Log = nil
	}
	return r
}

// json is the record as it is stored.
func (r Record) json() json.RawMessage {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // not possible: only times, numbers and strings
	}
	return text
}

// readRecord parses a stored record.
func readRecord(text []byte) (r Record, err error) {
	if err = json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("read a record: %w; was it written by another version?", err)
	}
	return r, nil
}

// dropped is the record of a pass that was deferred and does not go on.
func (r Record) dropped(reason, why string) Record {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Reason != ReasonDeferred {
			continue
		}
		run.Reason = reason
		if run.Error != "" {
			run.Error += "; "
		}
		run.Error += "was deferred, and does not go on: " + why
	}
	r.concludeAs(reason)
	return r
}

// concludeAs sums up the runs of a pass whose regions were left for want of units.
func (r *Record) concludeAs(reason string) {
	if r.conclude(); r.Outcome == Exhausted {
		r.Reason = reason
	}
}

// then is a run that was left, with what a later part of its pass made of it.
func (r Run) then(later Run) Run {
	r.Unknown = r.Unknown || later.Unknown
	later.Unknown = r.Unknown
	if later.Started.IsZero() && !r.Started.IsZero() { // it was cut, and did not go on
		if r.Units, r.Calls = r.Units+later.Units, r.Calls+later.Calls; later.Calls > 0 {
			r.Spent = nil // a part that was lost took more, of which the operations are not known
		}
		r.Outcome, r.Reason, r.Error = later.Outcome, later.Reason, later.Error
		switch {
		case r.Outcome == Skipped && r.Reason == ReasonDeferred:
			r.Outcome = Exhausted
		case r.Outcome == Skipped && r.Reason == ReasonCrashed:
			r.Outcome = Lost
		case r.Outcome == Skipped:
			r.Outcome = Drained
		}
		return r
	}
	if later.Spent != nil && !r.Started.IsZero() {
		if later.Spent = needs.Together(append(slices.Clone(r.Spent), later.Spent...)); r.Spent == nil {
			later.Spent = nil // of the first part it is not known
		}
	}
	later.Units, later.Calls, later.Pages = r.Units+later.Units, r.Calls+later.Calls, r.Pages+later.Pages
	later.Unchanged += r.Unchanged
	return later
}
