package jobs

import (
	"encoding/json"
	"fmt"
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
	// Drained: cut by a stop, or by a person, after it had spent.
	Drained Outcome = "drained"
	// Skipped: not started, or cut before it had spent, because others were
	// exhausted, the daemon drains, or the tick is another pass's.
	Skipped Outcome = "skipped"
	// Missed: no daemon took the tick in time.
	Missed Outcome = "missed"
	// Lost: its daemon was not heard of any more, and the pass taken for dead.
	Lost Outcome = "lost"
)

// Kind is why a pass began.
type Kind string

// The kinds of passes.
const (
	Scheduled Kind = "schedule" // its tick came
	Manual    Kind = "manual"   // run --once, run --now
	Triggered Kind = "trigger"  // a person asked for it, through the store
	Queued    Kind = "queue"    // its tick came while another pass was under way
	CaughtUp  Kind = "catch_up" // its tick came while no daemon was there
)

// The reasons that stand beside an outcome; a failed status is "status 403", a
// command's "exit 3" or "signal killed", an exhausted one's "exit 75".
const (
	ReasonLimit       = "limit"       // exhausted: a limit of the budget
	ReasonRecovering  = "recovering"  // exhausted: the store has lost data, and not all hosts have reported
	ReasonUpstream    = "upstream"    // exhausted: the upstream refuses, or has locked the budget, or a person has
	ReasonExhausted   = "exhausted"   // skipped: a region before it was exhausted
	ReasonOverlap     = "overlap"     // skipped: another pass is under way
	ReasonPaused      = "paused"      // skipped: a person has paused the job
	ReasonDown        = "down"        // missed: no daemon was there in time
	ReasonLate        = "late"        // missed: it is past max_late
	ReasonCatchUp     = "catch_up"    // missed: newer ones are caught up
	ReasonCrashed     = "crashed"     // lost: its daemon was not heard of any more; skipped: not started before that
	ReasonFenced      = "fenced"      // lost: another daemon has taken it for dead
	ReasonUnchanged   = "unchanged"   // succeeded: the upstream has nothing that is not in an earlier file
	ReasonDrained     = "drained"     // skipped: the daemon was told to stop
	ReasonStop        = "stop"        // drained: the daemon was told to stop
	ReasonCancelled   = "cancelled"   // drained, skipped: a person has ended the pass, or taken back the request for it
	ReasonInterrupted = "interrupted" // drained, skipped: the daemon was told to stop at once
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
	ReasonRegion      = "region"      // failed: a person asked for a region that the job has not any more
)

// severity is the order in which a pass takes its outcome from its runs, the
// most telling first.
var severity = []Outcome{Lost, Failed, TimedOut, Drained, Exhausted, Missed, Skipped, Succeeded}

// Instant is a time that stands in JSON as RFC 3339, UTC, with microseconds.
type Instant struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + InstantFormat + `"`)), nil
}

// InstantFormat is how an instant, in UTC, stands in JSON and logs: RFC 3339
// with microseconds.
const InstantFormat = "2006-01-02T15:04:05.000000Z"

// InstantOf is the instant of µs.
func InstantOf(micros int64) Instant { return Instant{time.UnixMicro(micros).UTC()} }

// maxHistory is how many records of a job are kept at most.
const maxHistory = 20_000

// Record is what became of a tick, or of several that no pass was started for. Its JSON is
// what a [State] keeps in the history.
type Record struct {
	Tick Instant `json:"tick"`
	// Until is the last of several ticks that were missed, or skipped at once, and
	// Ticks how many.
	Until *Instant `json:"until,omitempty"`
	Ticks int      `json:"ticks,omitempty"`
	Kind  Kind     `json:"kind"`
	// Outcome is the most telling of the runs', and Reason that run's.
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	// Started and Ended are by the daemon's clock; zero where no pass began.
	Started Instant `json:"started,omitzero"`
	Ended   Instant `json:"ended,omitzero"`
	// Host is where it ran: "in process P on HOST".
	Host string `json:"host,omitempty"`
	// Units are those charged, whatever became of the calls.
	Units int64 `json:"units"`
	// Error says what kept the pass from beginning; empty when it began.
	Error string `json:"error"`
	// Request is the ID of the request that it was for, and Note says who asked.
	Request string `json:"request,omitempty"`
	Note    string `json:"note,omitempty"`
	Runs    []Run  `json:"runs"` // in the order of the pass
}

// Run is what became of one region.
type Run struct {
	Region  string  `json:"region"`
	Outcome Outcome `json:"outcome"` // empty in the record of a pass under way
	Reason  string  `json:"reason"`
	// Started and Ended are zero where the run was not started.
	Started Instant `json:"started,omitzero"`
	Ended   Instant `json:"ended,omitzero"`
	Units   int64   `json:"units"` // charged
	Calls   int     `json:"calls"` // charged, one for each request
	Pages   int     `json:"pages"` // fetched whole, by this run
	// Unchanged are pages that the upstream said were as before.
	Unchanged int `json:"unchanged,omitempty"`
	// Attempts are how often it was tried: 1 but for retries.
	Attempts int `json:"attempts,omitempty"`
	// Resumed: it went on where an earlier run had been cut.
	Resumed bool `json:"resumed,omitempty"`
	// Output is the file: the final one, or what was kept of a run that was
	// cut, named .partial; empty when there is none.
	Output string `json:"output"`
	Error  string `json:"error"`
	// Log is its last lines.
	Log []string `json:"log,omitempty"`
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

// firstNotStarted is the region that the next pass begins with: the first that was
// neither started nor failed nor lost before that; empty where there is none.
func (r *Record) firstNotStarted() string {
	i := slices.IndexFunc(r.Runs, func(run Run) bool { return run.Started.IsZero() && run.Outcome != Failed && run.Outcome != Lost })
	if i < 0 {
		return ""
	}
	return r.Runs[i].Region
}

// brief is the record without what its runs have printed.
func (r Record) brief() Record {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		r.Runs[i].Log = nil
	}
	return r
}

// json is the record as it is kept.
func (r Record) json() json.RawMessage {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // times and texts alone
	}
	return text
}

// readRecord reads a record as it was kept.
func readRecord(text []byte) (r Record, err error) {
	if err = json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("read a record: %w; was it written by another version?", err)
	}
	return r, nil
}
