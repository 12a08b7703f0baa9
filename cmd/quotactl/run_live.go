package main

import (
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

// live is what run goes by. A reload puts another generation in force; the store,
// the metrics and the listener stay.
type live struct {
	app     *app
	names   []string // of the jobs to run; none: all
	flags   runFlags
	log     *slog.Logger
	notices *notices
	file    *watchedFile

	timeout time.Duration // the store's
	store   *meteredStore
	metrics *metrics
	servers *servers // nil: nothing is listened on

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

func newLive(a *app, names []string, f runFlags) *live {
	l := &live{app: a, names: names, flags: f, log: a.logger(), file: &watchedFile{path: a.configPath}}
	if f.endpoint != nil {
		l.servers = &servers{}
	}
	l.notices = newNotices(l.log, a.now, !f.once)
	return l
}

// read reads the configuration and its jobs, whose secrets must be there. The error
// has all faults at once.
func (l *live) read() (*config.Config, []*jobs.Job, error) {
	l.file.mark() // what is written from now on is another
	cfg, list, err := l.app.loadConfig()
	if err != nil {
		return nil, nil, err
	}
	if list, err = l.app.chooseJobs(list, l.names, l.flags); err != nil {
		return nil, nil, err
	}
	if !l.flags.sandbox {
		if err := jobs.CheckSecrets(list, l.app.env); err != nil {
			return nil, nil, &exitError{code: exitUsage, err: err}
		}
	}
	return cfg, list, nil
}

// begin puts the first generation in force on an opened store.
func (l *live) begin(cfg *config.Config, list []*jobs.Job, store open.Backend) error {
	l.timeout = open.Timeout(l.app.storeAt(cfg), cfg.Store)
	l.metrics = newMetrics(nil, l.timeout)
	l.store = &meteredStore{Backend: store, metrics: l.metrics, log: l.log}
	first, err := l.open(cfg, list)
	if err != nil {
		return err
	}
	l.metrics.admit(first.budgets, cfg.Upstreams)
	l.remember(cfg)
	l.takeOver(first)
	return nil
}

// open opens the budgets of the jobs, and all others of the configuration where
// decisions on them are served. It asks the store for nothing.
func (l *live) open(cfg *config.Config, list []*jobs.Job) (*generation, error) {
	var names []string
	if l.servers != nil {
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
		if g.budgets[name], err = l.app.budget(cfg, l.store, name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// takeOver puts a generation in force. What is under way goes on with the budgets
// that it has.
func (l *live) takeOver(g *generation) {
	grace := time.Duration(0)
	for _, job := range g.jobs {
		grace = max(grace, job.Grace)
	}
	l.stop.Store(max(l.stop.Load(), int64(stopTakes(grace, l.timeout))))
	l.current.Store(g)
	l.metrics.take(g.budgets)
	l.metrics.expect(g.jobs)
	if l.servers != nil {
		l.servers.swap(l.decisions(g))
	}
}

// decisions serves the budgets that are open, and those that a credential "*"
// admits.
func (l *live) decisions(g *generation) *serve.Server {
	connections := int64(openAtOnce())
	return serve.New(serve.Options{
		Budgets: slices.Collect(maps.Values(g.budgets)),
		Open:    func(name string) (*budget.Budget, error) { return l.app.budget(g.config, l.store, name) },
		Token:   l.flags.endpoint.token, Loopback: l.flags.endpoint.loopback, Log: l.log,
		UnderWay: max(1, serve.DefaultUnderWay*connections/mostConnections), Waiting: max(1, serve.DefaultWaiting*connections/mostConnections),
	})
}

// run is the daemon, until it is told to stop.
func (l *live) run(ctx context.Context, drain <-chan struct{}, hangups <-chan os.Signal, options jobs.Options) (err error) {
	options.Observe = l.metrics
	l.metrics.follow(newJobCollector(options.State, l.jobs, l.timeout))
	until, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	if l.servers != nil {
		l.app.collectSeldom()
		serving := &listener{
			metrics: l.metrics, servers: l.servers, drain: drain, timeout: l.timeout,
			budgets: func() map[string]*budget.Budget { return l.current.Load().budgets },
		}
		under, failed := serving.serve(ctx, l.flags.endpoint, l.app)
		if failed != nil {
			return failed
		}
		options.DecisionsURL = under.called
		defer func() {
			cancel()
			helpers.Wait()
			err = errors.Join(err, under.stop())
		}()
		drain = l.drainWith(until, drain, under.over, &helpers)
	}
	runner, err := jobs.New(l.current.Load().jobs, options)
	if err != nil {
		return err
	}
	helpers.Go(func() { l.notices.watch(until, drain, &l.metrics.pulse, l.jobs) })
	helpers.Go(func() { l.follow(until, drain, hangups, runner) })
	return runner.Run(ctx, drain, l.flags.now)
}

// drainWith is closed with drain, and when nothing is listened on any more: a daemon
// that cannot be reached drains, so that its supervisor restarts it.
func (l *live) drainWith(ctx context.Context, drain, over <-chan struct{}, helpers *sync.WaitGroup) <-chan struct{} {
	ending := make(chan struct{})
	helpers.Go(func() {
		select {
		case <-drain:
		case <-over:
			l.log.Error("listening has ended: the daemon stops, pages under way are finished, no other is started")
			l.notices.stopping(l.stopTakes())
		case <-ctx.Done():
			return
		}
		close(ending)
	})
	return ending
}

// jobs are those in force.
func (l *live) jobs() []*jobs.Job { return l.current.Load().jobs }

// stopTakes is how long a stop may take. Any goroutine may ask, before a generation is
// in force too.
func (l *live) stopTakes() time.Duration {
	return max(time.Duration(l.stop.Load()), stopTakes(0, 0))
}

// storeCloses is how long a store may take to be closed, beside its timeout.
const storeCloses = 5 * time.Second

// stopTakes is how long a stop may take at most: passes under way have their grace
// and are recorded, requests under way are answered, and the store is closed.
func stopTakes(grace, storeTimeout time.Duration) time.Duration {
	return grace + jobs.EndTakes + lastRequest + storeTimeout + storeCloses + storeTimeout
}

// remember notes where a configuration's secrets are. Those of an earlier one may
// still be in the environment of commands.
func (l *live) remember(cfg *config.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := config.Upstream{}
	if l.named != nil {
		all = l.named.Upstreams[0]
	}
	for _, upstream := range cfg.Upstreams {
		for _, credential := range upstream.Credentials {
			if !slices.Contains(all.Credentials, credential) {
				all.Credentials = append(all.Credentials, credential)
			}
		}
	}
	l.named = &config.Config{Store: cfg.Store, Upstreams: []config.Upstream{all}}
}

// secrets are those that can be read now and that no command's output may hold.
func (l *live) secrets() []string {
	l.mu.Lock()
	named := l.named
	l.mu.Unlock()
	known := append(jobs.KnownSecrets(named, l.app.env), secret.OfURL(named.Store.URL)...)
	known = append(known, secret.OfURL(l.app.storeURL)...)
	if l.flags.endpoint != nil && l.flags.endpoint.token != "" {
		known = append(known, l.flags.endpoint.token)
	}
	return known
}
