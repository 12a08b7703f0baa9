package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
)

// Options configures a Runner. State and Budgets are required; the zero value of the
// others means the default.
type Options struct {
	State State
	// Budgets has the budget of every job, by name.
	Budgets map[string]*budget.Budget
	// Log receives the log, with the fields job, region, run, budget and operation; nil
	// discards it.
	Log *slog.Logger
	// Report is called at the end of each run, instead of Log, for one run at a time.
	Report func(job *Job, tick time.Time, run Run)
	// Ping is called when a pass begins, with a record without an outcome, and when it has
	// ended, waits to go on, or was lost. It must return at once; nil means nobody.
	Ping func(job *Job, pass Record)
	// Now is the wall clock that decides when a job ticks; nil means time.Now.
	Now func() time.Time
	// Env looks up secrets; nil means os.LookupEnv.
	Env func(name string) (string, bool)
	// Secrets returns secrets that commands may have besides their own credential's, such
	// as other credentials' and the store's password; they are removed from what commands
	// print. It is called at each start; nil means none.
	Secrets func() []string
	// Transport sends the requests. It must send each exactly once and follow no
	// redirect, since each request is charged once. Nil means a transport that does so.
	Transport http.RoundTripper
	// Heartbeat is how often a pass renews its claim; 0 means DefaultHeartbeat.
	Heartbeat time.Duration
	// Jitter returns a random number from 0 to 1, 1 excluded, for the waits before a
	// retry; nil means math/rand/v2's.
	Jitter func() float64
	// Poll is how often the daemon checks whether somebody has asked something of a job;
	// 0 means DefaultPoll.
	Poll time.Duration
	// Observe receives events for metrics; nil means nobody.
	Observe Observer
	// StoreURL is passed to commands as QUOTACTL_STORE; empty if the store is the one in
	// their configuration. The path of a SQLite file is made absolute.
	StoreURL string
	// DecisionsURL is passed to commands as QUOTACTL_URL: the address where this daemon
	// decides charges over HTTP; empty if it does not.
	DecisionsURL string
	// Meter starts what charges the calls of a run's command, for jobs with meter = true.
	Meter func(context.Context, MeteredRun) (Meter, error)
	// Sandbox is the address, scheme and host, of a sandbox that replaces all upstreams;
	// no secret is then read or sent.
	Sandbox *url.URL
}

// Runner runs the passes of jobs. Make it with New; use it with Run or Once.
type Runner struct {
	mu      sync.Mutex // guards jobs, budgets, underWay and untold
	jobs    []*Job
	budgets map[string]*budget.Budget
	changed chan struct{} // signals that a reload changed the jobs
	// underWay maps claims' holders to the functions that end their passes.
	underWay map[string]func(Cancel)
	untold   map[string][]untold // by job

	options Options
	docs    *documents
	planner *planner
	secrets *secrets
	log     *slog.Logger
	maxBody int64
	// maxLogged is how many bytes of a command's output are logged per run.
	maxLogged int64
	flush     func(*os.File) error // makes a file's content safe on disk
	report    sync.Mutex           // lets one run report at a time
}

// New makes a Runner. The error names a job whose budget is missing from the options, or
// that is not a fetch job although a sandbox replaces the upstreams.
func New(list []*Job, options Options) (*Runner, error) {
	if err := checkList(list, options.Budgets, options.Sandbox != nil); err != nil {
		return nil, err
	}
	if options.Heartbeat == 0 {
		options.Heartbeat = DefaultHeartbeat
	}
	if options.Poll == 0 {
		options.Poll = DefaultPoll
	}
	if options.Jitter == nil {
		options.Jitter = rand.Float64
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Env == nil {
		options.Env = os.LookupEnv
	}
	if options.Observe == nil {
		options.Observe = nobody{}
	}
	if options.Ping == nil {
		options.Ping = func(*Job, Record) {}
	}
	if options.Transport == nil {
		options.Transport = oneRequestTransport()
	}
	docs := &documents{
		state: &boundedState{options.State, make(chan struct{}, maxVisits)}, heartbeat: options.Heartbeat, log: options.Log,
		now:   func() time.Time { return options.Now().Round(0) },
		watch: watch{patience: 2 * options.Heartbeat, gap: 3 * max(options.Heartbeat, options.Poll)},
	}
	return &Runner{
		jobs: list, budgets: options.Budgets, changed: make(chan struct{}, 1), underWay: map[string]func(Cancel){}, untold: map[string][]untold{},
		options: options, docs: docs, planner: newPlanner(), secrets: &secrets{options.Sandbox != nil, options.Env, options.Secrets}, log: options.Log,
		maxBody: maxBody, maxLogged: maxLogged, flush: (*os.File).Sync,
	}, nil
}

// checkList returns an error that names a job that cannot be run.
func checkList(list []*Job, budgets map[string]*budget.Budget, sandbox bool) error {
	for _, j := range list {
		if j.Fetch == nil && sandbox && j.StartedBy == StartedByDaemon {
			return fmt.Errorf("job %s is a command job: a sandbox replaces the upstreams of fetch jobs only", j.Name)
		}
		if budgets[j.Budget] == nil {
			return fmt.Errorf("job %s: its budget %s is not open", j.Name, j.Budget)
		}
	}
	return nil
}

// Reload gives a running daemon another list of jobs and budgets. A job keeps its state
// by its name. Passes under way end as they began, even if their job was removed. The
// errors are those of New; then nothing is changed.
func (r *Runner) Reload(list []*Job, budgets map[string]*budget.Budget) error {
	if err := checkList(list, budgets, r.options.Sandbox != nil); err != nil {
		return err
	}
	r.mu.Lock()
	all := maps.Clone(r.budgets) // passes under way, or about to begin, may use removed budgets
	maps.Copy(all, budgets)
	r.jobs, r.budgets = list, all
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default: // a signal is pending
	}
	return nil
}

// list is the jobs as they are configured now.
func (r *Runner) list() []*Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs
}

// budget is the budget of this name as it is configured now, or was last; nil if it never
// was.
func (r *Runner) budget(name string) *budget.Budget {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.budgets[name]
}

// Once runs one manual pass of each job that daemons start, one job after the other, without the stagger's
// waits. When drain is closed, the run under way ends before its next page and no other
// is started; when ctx ends it is cut at once. Once returns the passes that it tried,
// including those that could not begin.
func (r *Runner) Once(ctx context.Context, drain <-chan struct{}) []Pass {
	soft, cancel := untilClosed(ctx, drain, errDrained)
	defer cancel()
	var passes []Pass
	for _, j := range r.list() {
		if soft.Err() != nil {
			break
		}
		if j.StartedBy != StartedByDaemon {
			continue
		}
		passes = append(passes, r.manual(ctx, soft, j, true))
	}
	return passes
}

// now is the wall clock without the monotonic clock, which may stop while a machine is
// suspended.
func (r *Runner) now() time.Time { return r.docs.now() }

// Observer receives a [Runner]'s events, for metrics. Its methods must return at once and
// may be called by many goroutines.
type Observer interface {
	// Looked: the daemon read its clock, as it does at least once a minute while it is
	// alive.
	Looked()
	// TickStarted: a scheduled pass started this late after its tick.
	TickStarted(job *Job, late time.Duration)
	// RunEnded: a run ended, or was not started.
	RunEnded(job *Job, region string, outcome Outcome)
	// TicksMissed: no daemon took this many ticks in time.
	TicksMissed(job *Job, ticks int)
	// PassEnded: a pass ended, or could not begin.
	PassEnded(job *Job, outcome Outcome)
	// UpstreamAnswered: the header of a response to a job's request came so long after the
	// request was sent.
	UpstreamAnswered(job *Job, operation string, took time.Duration)
	// ResponseUnread: a response to a job's request contains something that could not be
	// read.
	ResponseUnread(job *Job, unread budgethttp.Unread)
}

// nobody is the Observer if none is given.
type nobody struct{}

func (nobody) Looked()                         {}
func (nobody) TickStarted(*Job, time.Duration) {}
func (nobody) TicksMissed(*Job, int)           {}
func (nobody) RunEnded(*Job, string, Outcome)  {}
func (nobody) PassEnded(*Job, Outcome)         {}

func (nobody) UpstreamAnswered(*Job, string, time.Duration) {}
func (nobody) ResponseUnread(*Job, budgethttp.Unread)       {}
