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

// Options is what a Runner works with. State and Budgets are needed, the zero
// value of the others is the default.
type Options struct {
	State State
	// Budgets has the budget of every job, by name.
	Budgets map[string]*budget.Budget
	// Log takes what happens, with the fields job, region, run, budget and
	// operation; nil drops it.
	Log *slog.Logger
	// Report is told the end of each run instead of Log. It is called for one
	// run at a time.
	Report func(job *Job, tick time.Time, run Run)
	// Now is the wall clock that ticks go by; nil is time.Now.
	Now func() time.Time
	// Env looks secrets up; nil is os.LookupEnv.
	Env func(name string) (string, bool)
	// Secrets are those that commands may come by besides their own credential's,
	// such as other credentials' and the store's password; they are taken out of
	// what commands print. It is asked at each start; nil is none.
	Secrets func() []string
	// Transport sends the requests. It must send each once and follow no
	// redirect: what is sent was charged. Nil is one that keeps to that.
	Transport http.RoundTripper
	// Heartbeat is how often a pass renews its claim; 0 is DefaultHeartbeat.
	Heartbeat time.Duration
	// Jitter is a random number from 0 to 1, 1 excluded, for the waits before what
	// failed is tried again; nil is math/rand/v2's.
	Jitter func() float64
	// Poll is how often the daemon looks whether somebody has asked something of a
	// job; 0 is DefaultPoll.
	Poll time.Duration
	// Observe is told what happens, for metrics; nil is nobody.
	Observe Observer
	// StoreURL is handed to commands as QUOTACTL_STORE, where the store is
	// another than their configuration's; a SQLite file's path is made absolute.
	StoreURL string
	// DecisionsURL is handed to commands as QUOTACTL_URL: where this daemon decides
	// charges over HTTP; empty: nowhere.
	DecisionsURL string
	// Sandbox is the address, scheme and host, of a sandbox upstream that
	// stands for all upstreams; no secret is then read or sent.
	Sandbox *url.URL
}

// Runner runs the passes of jobs. Use New; its verbs are Run and Once.
type Runner struct {
	mu      sync.Mutex // guards jobs, budgets and underWay
	jobs    []*Job
	budgets map[string]*budget.Budget
	changed chan struct{} // a reload has brought other jobs
	// underWay are what ends the passes of this process, by their claims' holders.
	underWay map[string]func(Cancel)

	options Options
	docs    *documents
	secrets *secrets
	log     *slog.Logger
	maxBody int64
	// maxLogged is how many bytes that a command prints are logged of a run.
	maxLogged int64
	flush     func(*os.File) error // makes what was written to a file safe on disk
	report    sync.Mutex           // lets one run at a time be reported
}

// New makes a Runner. The error names a job whose budget the options lack, or
// one that is no fetch job where a sandbox stands for the upstreams.
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
	if options.Transport == nil {
		options.Transport = oneRequestTransport()
	}
	docs := &documents{
		state: &boundedState{options.State, make(chan struct{}, maxVisits)}, heartbeat: options.Heartbeat, log: options.Log,
		now:   func() time.Time { return options.Now().Round(0) },
		watch: watch{patience: 2 * options.Heartbeat, gap: 3 * max(options.Heartbeat, options.Poll)},
	}
	return &Runner{
		jobs: list, budgets: options.Budgets, changed: make(chan struct{}, 1), underWay: map[string]func(Cancel){},
		options: options, docs: docs, secrets: &secrets{options.Sandbox != nil, options.Env, options.Secrets}, log: options.Log,
		maxBody: maxBody, maxLogged: maxLogged, flush: (*os.File).Sync,
	}, nil
}

// check names a job that cannot be run.
func checkList(list []*Job, budgets map[string]*budget.Budget, sandbox bool) error {
	for _, j := range list {
		if j.Fetch == nil && sandbox {
			return fmt.Errorf("job %s is a command job: a sandbox stands for the upstreams of fetch jobs only", j.Name)
		}
		if budgets[j.Budget] == nil {
			return fmt.Errorf("job %s: its budget %s is not open", j.Name, j.Budget)
		}
	}
	return nil
}

// Reload has a daemon go on with other jobs and budgets. What is kept of a job goes
// by its name; passes under way end as they began, also those of jobs that are gone.
// The error is as in New; nothing is changed then.
func (r *Runner) Reload(list []*Job, budgets map[string]*budget.Budget) error {
	if err := checkList(list, budgets, r.options.Sandbox != nil); err != nil {
		return err
	}
	r.mu.Lock()
	all := maps.Clone(r.budgets) // passes under way, and those about to begin, may spend what is gone
	maps.Copy(all, budgets)
	r.jobs, r.budgets = list, all
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default: // it was not heard of yet
	}
	return nil
}

// list is the jobs as they are configured now.
func (r *Runner) list() []*Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs
}

// budget is the one of this name, as it is configured now, or was before; nil where
// it never was.
func (r *Runner) budget(name string) *budget.Budget {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.budgets[name]
}

// Once runs one manual pass of each job, one job after the other and without
// the stagger's waits. When drain is closed the run under way ends at its next
// page boundary and no other is started; when ctx ends it is cut at once. The
// passes that began are returned.
func (r *Runner) Once(ctx context.Context, drain <-chan struct{}) []Pass {
	soft, cancel := untilDrained(ctx, drain)
	defer cancel()
	var passes []Pass
	for _, j := range r.list() {
		if soft.Err() != nil {
			break
		}
		passes = append(passes, r.manual(ctx, soft, j, true))
	}
	return passes
}

// now is the wall clock alone: between two readings a suspended machine's
// monotonic clock may have stood still.
func (r *Runner) now() time.Time { return r.docs.now() }

// Observer is told what a [Runner] does, for metrics. Its methods must return at
// once and may be called by many goroutines.
type Observer interface {
	// Looked: the daemon has looked at its clock, as it does once a minute at
	// least while it lives.
	Looked()
	// TickStarted: a scheduled pass was started so late after its tick.
	TickStarted(job *Job, late time.Duration)
	// RunEnded: a run ended, or was not started.
	RunEnded(job *Job, region string, outcome Outcome)
	// TicksMissed: no daemon took so many ticks in time.
	TicksMissed(job *Job, ticks int)
	// PassEnded: a pass ended, or could not begin.
	PassEnded(job *Job, outcome Outcome)
	// ResponseUnread: something that a response to a job's request says could not be
	// read.
	ResponseUnread(job *Job, unread budgethttp.Unread)
}

// nobody is the Observer where none is given.
type nobody struct{}

func (nobody) Looked()                         {}
func (nobody) TickStarted(*Job, time.Duration) {}
func (nobody) TicksMissed(*Job, int)           {}
func (nobody) RunEnded(*Job, string, Outcome)  {}
func (nobody) PassEnded(*Job, Outcome)         {}

func (nobody) ResponseUnread(*Job, budgethttp.Unread) {}
