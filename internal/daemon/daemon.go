package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

// Options is what a Daemon works with. Endpoint may be nil, Version empty.
type Options struct {
	// File is the path of the configuration; when it changes it is read again.
	File string
	// Read reads the configuration and the jobs to run. The error has all faults at
	// once.
	Read     func() (*config.Config, []*jobs.Job, error)
	Log      *slog.Logger
	Env      func(name string) (string, bool) // os.LookupEnv
	Now      func() time.Time
	Version  string    // for the metrics
	Endpoint *Endpoint // where it listens; nil: nowhere
	// Once: it is no daemon, but one pass of each job; no service manager is notified.
	Once bool
	// StartNow begins the daemon with a pass of each job.
	StartNow bool
	// Sandbox: a sandbox stands for the upstreams, with a store of its own.
	Sandbox bool
}

// Daemon is what run goes by: Read and OpenStore, then Begin, then Run. A reload puts
// another generation in force; the store, the metrics and the listener stay.
type Daemon struct {
	o       Options
	log     *slog.Logger
	notices *notices
	file    *watchedFile

	storeURL string        // instead of the configuration's; empty: that
	timeout  time.Duration // the store's
	store    *meteredStore
	metrics  *metrics
	servers  *servers // nil: nothing is listened on

	current atomic.Pointer[generation]
	stop    atomic.Int64 // how long a stop may take, a time.Duration: the longest of all generations

	mu    sync.Mutex     // guards named
	named *config.Config // the places of all secrets of all generations
}

// generation is a configuration in force, with what was opened by it.
type generation struct {
	config  *config.Config
	jobs    []*jobs.Job
	budgets map[string]*budget.Budget
}

// New makes a Daemon.
func New(o Options) *Daemon {
	d := &Daemon{o: o, log: o.Log, file: &watchedFile{path: o.File}}
	if o.Endpoint != nil {
		d.servers = &servers{}
	}
	d.notices = newNotices(d.log, o.Now, !o.Once)
	return d
}

// Read reads the configuration and its jobs. The error is that of [Options.Read].
func (d *Daemon) Read() (*config.Config, []*jobs.Job, error) {
	d.file.mark() // what is written from now on is another
	return d.o.Read()
}

// Begin puts the first generation in force on an opened store; storeURL is the
// store's where that is another than the configuration's, else empty.
func (d *Daemon) Begin(cfg *config.Config, list []*jobs.Job, store open.Backend, storeURL string) error {
	d.storeURL = storeURL
	d.timeout = open.Timeout(d.storeAt(cfg), cfg.Store)
	d.metrics = newMetrics(nil, d.timeout, d.o.Version)
	d.store = &meteredStore{Backend: store, metrics: d.metrics, log: d.log}
	first, err := d.open(cfg, list)
	if err != nil {
		return err
	}
	d.metrics.admit(first.budgets, cfg.Upstreams)
	d.remember(cfg)
	d.takeOver(first)
	return nil
}

// open opens the budgets of the jobs, and all others of the configuration where
// decisions on them are served. It asks the store for nothing.
func (d *Daemon) open(cfg *config.Config, list []*jobs.Job) (*generation, error) {
	var names []string
	if d.servers != nil {
		names = cfg.Budgets()
	}
	for _, job := range list {
		names = append(names, job.Budget)
	}
	g := &generation{config: cfg, jobs: list, budgets: map[string]*budget.Budget{}}
	for _, name := range names {
		if g.budgets[name] != nil {
			continue
		}
		var err error
		if g.budgets[name], err = open.BudgetOn(d.store, cfg, d.storeAt(cfg), name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// takeOver puts a generation in force. What is under way goes on with the budgets
// that it has.
func (d *Daemon) takeOver(g *generation) {
	grace := time.Duration(0)
	for _, job := range g.jobs {
		grace = max(grace, job.Grace)
	}
	d.stop.Store(max(d.stop.Load(), int64(StopTakes(grace, d.timeout))))
	d.current.Store(g)
	d.metrics.take(g.budgets)
	d.metrics.expect(g.jobs)
	if d.servers != nil {
		d.servers.swap(d.decisions(g))
	}
}

// decisions serves the budgets that are open, and those that a credential "*"
// admits.
func (d *Daemon) decisions(g *generation) *serve.Server {
	connections := int64(openAtOnce())
	return serve.New(serve.Options{
		Budgets: slices.Collect(maps.Values(g.budgets)),
		Open: func(name string) (*budget.Budget, error) {
			return open.BudgetOn(d.store, g.config, d.storeAt(g.config), name)
		},
		Token: d.o.Endpoint.token, Loopback: d.o.Endpoint.loopback, Log: d.log,
		UnderWay: max(1, serve.DefaultUnderWay*connections/mostConnections), Waiting: max(1, serve.DefaultWaiting*connections/mostConnections),
	})
}

// Run is the daemon, until drain is closed and what is under way has ended, or until
// ctx ends. Each signal of hangups is a reload. An error of what it listens on may be
// an [*EndpointError].
func (d *Daemon) Run(ctx context.Context, drain <-chan struct{}, hangups <-chan os.Signal, options jobs.Options) (err error) {
	options.Observe = d.metrics
	d.metrics.follow(newJobCollector(options.State, d.jobs, d.timeout))
	until, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	if d.servers != nil {
		collectSeldom(d.o.Env)
		serving := &listener{
			metrics: d.metrics, servers: d.servers, drain: drain, timeout: d.timeout,
			budgets: d.Budgets,
		}
		under, failed := serving.serve(ctx, d.o.Endpoint, d.log)
		if failed != nil {
			return failed
		}
		options.DecisionsURL = under.called
		defer func() {
			cancel()
			helpers.Wait()
			err = errors.Join(err, under.stop())
		}()
		drain = d.drainWith(until, drain, under.over, &helpers)
	}
	runner, err := jobs.New(d.current.Load().jobs, options)
	if err != nil {
		return err
	}
	helpers.Go(func() { d.notices.watch(until, drain, &d.metrics.pulse, d.jobs) })
	helpers.Go(func() { d.follow(until, drain, hangups, runner) })
	return runner.Run(ctx, drain, d.o.StartNow)
}

// drainWith is closed with drain, and when nothing is listened on any more: a daemon
// that cannot be reached drains, so that its supervisor restarts it.
func (d *Daemon) drainWith(ctx context.Context, drain, over <-chan struct{}, helpers *sync.WaitGroup) <-chan struct{} {
	ending := make(chan struct{})
	helpers.Go(func() {
		select {
		case <-drain:
		case <-over:
			d.log.Error("listening has failed: the daemon stops; it finishes pages under way and starts no other")
			d.Stopping()
		case <-ctx.Done():
			return
		}
		close(ending)
	})
	return ending
}

// jobs are those in force.
func (d *Daemon) jobs() []*jobs.Job { return d.current.Load().jobs }

// Stopping tells the service manager that the daemon was told to stop, and how long
// that may take. Any goroutine may call it, before a generation is in force too.
func (d *Daemon) Stopping() { d.notices.stopping(d.stopTakes()) }

// Budgets are those in force, by name.
func (d *Daemon) Budgets() map[string]*budget.Budget { return d.current.Load().budgets }

// storeAt is the URL of the store that a configuration is used with.
func (d *Daemon) storeAt(cfg *config.Config) string { return cmp.Or(d.storeURL, cfg.Store.URL) }

// stopTakes is how long a stop may take.
func (d *Daemon) stopTakes() time.Duration {
	return max(time.Duration(d.stop.Load()), StopTakes(0, 0))
}

// storeCloses is how long a store may take to be closed, beside its timeout.
const storeCloses = 5 * time.Second

// StopTakes is how long a stop may take at most: passes under way have their grace
// and are recorded, requests under way are answered, and the store is closed.
func StopTakes(grace, storeTimeout time.Duration) time.Duration {
	return grace + jobs.EndTakes + lastRequest + storeTimeout + storeCloses + storeTimeout
}

// remember notes where a configuration's secrets are. Those of an earlier one may
// still be in the environment of commands.
func (d *Daemon) remember(cfg *config.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := config.Upstream{}
	if d.named != nil {
		all = d.named.Upstreams[0]
	}
	for _, upstream := range cfg.Upstreams {
		for _, credential := range upstream.Credentials {
			if !slices.Contains(all.Credentials, credential) {
				all.Credentials = append(all.Credentials, credential)
			}
		}
	}
	d.named = &config.Config{Store: cfg.Store, Upstreams: []config.Upstream{all}}
}

// Secrets are those that can be read now and that no command's output may hold. It is
// for [jobs.Options].
func (d *Daemon) Secrets() []string {
	d.mu.Lock()
	named := d.named
	d.mu.Unlock()
	known := append(jobs.KnownSecrets(named, d.o.Env), secret.OfURL(named.Store.URL)...)
	known = append(known, secret.OfURL(d.storeURL)...)
	if d.o.Endpoint != nil && d.o.Endpoint.token != "" {
		known = append(known, d.o.Endpoint.token)
	}
	return known
}
