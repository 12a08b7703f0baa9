package jobs

import (
	"reflect"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// Job is a [job.NAME] table, checked by [Load].
type Job struct {
	Name     string
	Budget   string // upstream/credential
	Schedule *schedule.Schedule
	// Regions has at least one; the only one is empty where the job names none.
	Regions []string
	// Stagger is the span over which the regions of a pass start.
	Stagger time.Duration
	// Timeout ends a run, Grace is what a page under way has left once the
	// daemon is told to stop, or a command once it is told to end, MaxWait the
	// longest wait for units.
	Timeout, Grace, MaxWait time.Duration
	// Floor is how many units each call leaves to more important ones.
	Floor int64
	// Parallel is how many runs of a pass go at once; 0: all in the daemon,
	// one in [Runner.Once].
	Parallel int
	// CatchUp says what becomes of ticks that nobody took in time; those later than
	// MaxLate are missed, and of CatchUpAll the newest CatchUpLimit are run.
	CatchUp      CatchUp
	CatchUpLimit int
	MaxLate      time.Duration
	// BudgetParallel is how many runs of its budget go at once, over all jobs and
	// daemons; 0 for all.
	BudgetParallel int
	// Overlap says what becomes of a tick while a pass of the job is under way.
	Overlap Overlap
	// Retries is how often a page, or a command, that failed is tried again, first
	// after RetryWait.
	Retries   int
	RetryWait time.Duration
	// History is how long records are kept.
	History time.Duration
	// Checkpoint is how long a run that was cut may be gone on with; 0: never.
	Checkpoint time.Duration
	// OnStoreError is empty where the job leaves it to operation and upstream.
	OnStoreError budget.Policy
	// Needs is what is looked at before a run starts.
	Needs budget.Needs
	// Fetch or Command, one of them.
	Fetch *Fetch
	// Command is a program and its arguments, in which {job}, {region}, {run}
	// and {tick} stand for the run's; no shell reads them. It runs in the
	// configuration's folder and finds in its environment what the daemon has in
	// its own, so the credential's secret too where secret_env names a variable
	// of it, and QUOTACTL_CONFIG, _BUDGET, _JOB, _REGION, _RUN, _TICK and _FENCE.
	Command []string

	config     string // the configuration's file
	credential config.Credential
	upstream   string
}

// CatchUp says what becomes of ticks that nobody took in time.
type CatchUp string

// The values of catch_up.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last"
	CatchUpAll  CatchUp = "all"
)

// Overlap says what becomes of a tick while a pass of its job is under way.
type Overlap string

// The values of overlap.
const (
	Skip  Overlap = "skip"
	Queue Overlap = "queue" // one waits
	Allow Overlap = "allow"
)

// Fetch is a [job.NAME.fetch] table: a GET per page, written as NDJSON.
type Fetch struct {
	Operation string
	// URL may hold {job}, {region} and {tick}.
	URL string
	// SecretQuery or SecretHeader, at most one, says where the credential's
	// secret goes; SecretPrefix stands before it in a header.
	SecretQuery, SecretHeader, SecretPrefix string
	// NextParam carries the token found at the dotted path NextFrom of a body
	// into the next page's request; both empty: one page.
	NextParam, NextFrom string
	// MaxPages is 0 for all pages there are.
	MaxPages int
	// Items is the dotted path of an array whose items are written one a line;
	// empty: each body is a line.
	Items string
	// Conditional asks for pages only if they have changed.
	Conditional bool
	// Output holds {tick}, and {region} where there are several; it is
	// absolute or relative to the working directory.
	Output string
}

// says is what holds for every charge with the job's label.
func (j *Job) says() budget.JobSays {
	return budget.JobSays{Floor: j.Floor, OnStoreError: j.OnStoreError, MaxWait: &j.MaxWait}
}

// Next is the first tick after the instant.
func (j *Job) Next(after time.Time) time.Time { return j.Schedule.Next(after) }

// Offset is how long after its tick the region at a place of the pass starts;
// offsets belong to places, whatever region a pass begins with.
func (j *Job) Offset(place int) time.Duration {
	return time.Duration(place) * j.Stagger / time.Duration(len(j.Regions))
}

// Every is how long after each other the regions of a pass start; 0 for all at
// once.
func (j *Job) Every() time.Duration {
	if len(j.Regions) < 2 {
		return 0
	}
	return j.Offset(1)
}

// Order is the regions of a pass that begins with first and goes on
// cyclically; the configured order where first is none of them.
func (j *Job) Order(first string) []string {
	at := max(0, slices.Index(j.Regions, first))
	return slices.Concat(j.Regions[at:], j.Regions[:at])
}

// TickFormat is how a tick stands in file names, URLs and run labels, in UTC.
const TickFormat = "20060102T150405Z"

// maxRunLabel is the longest label a charge takes.
const maxRunLabel = 128

// runLabel names a run in the ledger: job/tick/region, the job cut short
// where all three are too long.
func (j *Job) runLabel(tick time.Time, region string) string {
	rest := "/" + tick.UTC().Format(TickFormat)
	if region != "" {
		rest += "/" + region
	}
	return j.Name[:min(len(j.Name), maxRunLabel-len(rest))] + rest
}

// Same reports whether two jobs, be they of two readings of a configuration, do the
// same at the same times.
func Same(a, b *Job) bool {
	if a.counts() != b.counts() {
		return false
	}
	// A schedule holds its zone as it was read, which is not the same twice.
	x, y := *a, *b
	x.Schedule, y.Schedule = nil, nil
	return reflect.DeepEqual(x, y)
}
