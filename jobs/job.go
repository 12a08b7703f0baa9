package jobs

import (
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs/needs"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// Job is a [job.NAME] table, checked by [Load].
type Job struct {
	Name     string
	Budget   string // upstream/credential
	Schedule *schedule.Schedule
	// StartedBy says who starts its runs. If cron does, a run that begins up to MissedAfter after
	// a tick belongs to it.
	StartedBy   StartedBy
	MissedAfter time.Duration
	// Regions has at least one entry; if the job names no regions, the only entry is
	// empty.
	Regions []string
	// Stagger is the span over which the regions of a pass start.
	Stagger time.Duration
	// Timeout ends a run. Grace is what a page under way has left when the daemon stops,
	// or a command when it is asked to end. MaxWait is the longest wait for units.
	Timeout, Grace, MaxWait time.Duration
	// StartWait is the longest wait for units before a pass starts: MaxWait. For a job whose
	// passes are deferred it is a second if the configuration has no max_wait, so that they
	// wait in the order of the deferred ones.
	StartWait time.Duration
	// Floor is how many units each call leaves to more important ones.
	Floor int64
	// Parallel is how many runs of a pass run at once; 0: all in the daemon, one in
	// [Runner.Once].
	Parallel int
	// CatchUp says what happens to ticks that no daemon took in time. Ticks later than
	// MaxLate are missed; with CatchUpAll the newest CatchUpLimit of the others are run.
	CatchUp      CatchUp
	CatchUpLimit int
	MaxLate      time.Duration
	// BudgetParallel is how many runs of its budget run at once, over all jobs and
	// daemons; 0: all.
	BudgetParallel int
	// Overlap says what happens to a tick while a pass of the job is under way.
	Overlap Overlap
	// OnExhausted is what happens to the regions that a pass leaves when the units are
	// gone.
	OnExhausted OnExhausted
	// Retries is how often a page or a command that failed is tried again, the first time
	// after RetryWait.
	Retries   int
	RetryWait time.Duration
	// History is how long records are kept.
	History time.Duration
	// Checkpoint is how long an interrupted run may be resumed; 0: never.
	Checkpoint time.Duration
	// StaleAfter is after how long without a complete pass, for want of units, the job counts
	// as starved; 0: never.
	StaleAfter time.Duration
	// Ping is an address that is called when a pass begins and ends.
	Ping Ping
	// OnStoreError is empty if the job leaves it to operation and upstream.
	OnStoreError budget.Policy
	// Needs must fit before a run starts.
	Needs budget.Needs
	// Hold says which needs are held before anything starts.
	Hold Hold
	// Fetch or Command is set, not both; neither is for a job that cron starts.
	Fetch *Fetch
	// Command is a program and its arguments. {job}, {region}, {run} and {tick} in them
	// are replaced by the run's; no shell reads them. It runs in the configuration's
	// folder. Its environment is the daemon's, including the credential's secret if
	// secret_env names a variable and KeepSecret is not set, plus QUOTACTL_CONFIG, _BUDGET, _JOB, _REGION, _RUN,
	// _TICK and _FENCE, and _STORE, _CHECKPOINT and _URL if they apply.
	Command []string
	// Meter has the calls of the command charged as they pass through this process. KeepSecret
	// keeps the secrets that the configuration names out of the command's reach: see [MeteredRun].
	Meter, KeepSecret bool

	// stated is what the configured needs take in a run, and bound what the most pages of
	// a fetch cost; nil: there are none.
	stated, bound []needs.Amount
	cfg           *config.Config // whose table it is
	credential    config.Credential
	upstream      string
}

// Ping is where the address is that a job calls, which may be a secret: at most one is set.
type Ping struct{ URL, Env, File string }

// CatchUp says what happens to ticks that no daemon took in time.
type CatchUp string

// The values of catch_up.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last"
	CatchUpAll  CatchUp = "all"
)

// Overlap says what happens to a tick while a pass of its job is under way.
type Overlap string

// The values of overlap.
const (
	Skip  Overlap = "skip"
	Queue Overlap = "queue" // one tick waits
	Allow Overlap = "allow"
)

// OnExhausted says what happens to the regions that a pass leaves when the units are gone.
type OnExhausted string

// The values of on_exhausted.
const (
	StopExhausted  OnExhausted = "stop"  // the next pass begins with them
	DeferExhausted OnExhausted = "defer" // the pass goes on once the units return
)

// Fetch is a [job.NAME.fetch] table: a GET per page, written as NDJSON.
type Fetch struct {
	Operation string
	// URL may contain {job}, {region} and {tick}.
	URL    string
	Secret config.Secret // how the request carries the credential's secret
	// NextParam is the query parameter that carries the next page's token; NextFrom is
	// the dotted path of that token in a body. Both empty: there is one page.
	NextParam, NextFrom string
	// MaxPages bounds the pages of a run; 0: no bound.
	MaxPages int
	// Items is the dotted path of an array whose items are written one per line; empty:
	// each body is a line.
	Items string
	// Conditional asks for pages only if they have changed.
	Conditional bool
	// Output contains {tick}, and {region} if there are several; it is absolute or
	// relative to the working directory.
	Output string
}

// Config is the configuration that has the job's table.
func (j *Job) Config() *config.Config { return j.cfg }

// says is what applies to every charge with the job's label.
func (j *Job) says() budget.JobSays {
	return budget.JobSays{Floor: j.Floor, OnStoreError: j.OnStoreError, MaxWait: &j.MaxWait}
}

// Next is the first tick after an instant.
func (j *Job) Next(after time.Time) time.Time { return j.Schedule.Next(after) }

// Offset is how long after its tick a pass starts the region at a place. Offsets belong
// to places, whatever region a pass begins with.
func (j *Job) Offset(place int) time.Duration {
	return time.Duration(place) * j.Stagger / time.Duration(len(j.Regions))
}

// Every is the interval at which the regions of a pass start; 0: all start at once.
func (j *Job) Every() time.Duration {
	if len(j.Regions) < 2 {
		return 0
	}
	return j.Offset(1)
}

// Order is the regions of a pass that begins with first and continues cyclically; the
// configured order if first is not a region of the job.
func (j *Job) Order(first string) []string {
	at := max(0, slices.Index(j.Regions, first))
	return slices.Concat(j.Regions[at:], j.Regions[:at])
}

// OrderFrom is the regions of a pass that begins with the regions that an earlier pass was
// to have run, and continues cyclically with next.
func (j *Job) OrderFrom(first []string, next string) []string {
	list := slices.DeleteFunc(slices.Clone(first), func(region string) bool { return !slices.Contains(j.Regions, region) })
	rest := slices.DeleteFunc(j.Order(next), func(region string) bool { return slices.Contains(list, region) })
	return append(list, rest...)
}

// TickFormat is the format of a tick in file names, URLs and run labels, in UTC.
const TickFormat = "20060102T150405Z"

// maxRunLabel is the longest label a charge takes.
const maxRunLabel = 128

// partLabel names a run in the ledger: job/tick/region; from the second part of its pass on,
// the tick carries the part's number. It shortens the job's name if the label would be too long.
func (j *Job) partLabel(tick time.Time, part int, region string) string {
	rest := "/" + tick.UTC().Format(TickFormat)
	if part > 1 {
		rest += "-" + strconv.Itoa(part)
	}
	if region != "" {
		rest += "/" + region
	}
	return j.Name[:min(len(j.Name), maxRunLabel-len(rest))] + rest
}

// Same reports whether two jobs, perhaps from two readings of a configuration, do the
// same at the same times.
func Same(a, b *Job) bool {
	if a.counts() != b.counts() || a.cfg.File != b.cfg.File {
		return false
	}
	// Each reading of a zone makes another value: schedules were compared above.
	x, y := *a, *b
	x.Schedule, y.Schedule = nil, nil
	x.stated, x.bound, y.stated, y.bound = nil, nil, nil, nil // prices are the budget's
	x.cfg, y.cfg = nil, nil                                   // so are most other tables
	return reflect.DeepEqual(x, y)
}

// NeedAlike reports whether the runs of two jobs need the same, as far as their configurations
// say: the same needs at the same prices, and the same operation and pages.
func NeedAlike(a, b *Job) bool {
	return a.Name == b.Name && slices.Equal(a.Regions, b.Regions) && slices.Equal(a.stated, b.stated) && slices.Equal(a.bound, b.bound) &&
		(a.Fetch == nil) == (b.Fetch == nil) && (a.Fetch == nil || a.Fetch.Operation == b.Fetch.Operation && a.Fetch.MaxPages == b.Fetch.MaxPages)
}
