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
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/page"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

// Options configure a Daemon. Endpoint may be nil, Version empty.
type Options struct {
	// File is the path of the configuration. The daemon reloads it when it changes.
	File string
	// Read reads the configuration and the jobs to run. Its error lists all mistakes.
	Read     func() (*config.Config, []*jobs.Job, error)
	Log      *slog.Logger
	Env      func(name string) (string, bool) // os.LookupEnv
	Now      func() time.Time
	Version  string    // for the metrics
	Endpoint *Endpoint // where it listens; nil: nowhere
	// Once: run one pass of each job, then end. The service manager is not notified.
	Once bool
	// StartNow: run a pass of each job at the start.
	StartNow bool
	// Sandbox: a sandbox with a store of its own replaces the upstreams.
	Sandbox bool
}

// Daemon runs the jobs and serves charges. A reload puts another generation in force; the
// store, the metrics and the listener stay.
type Daemon struct {
	o       Options
	log     *slog.Logger
	notices *notices
	file    *watchedFile

	storeURL string        // replaces the configuration's; empty: use that
	timeout  time.Duration // the store's
	store    *meteredStore
	metrics  *metrics
	servers  *servers   // nil: the daemon does not listen
	site     *page.Site // likewise
	door     *door.Door // likewise; it and its sessions outlive reloads

	current atomic.Pointer[generation]
	stop    atomic.Int64 // how long a stop may take, a time.Duration: the longest of all generations

	unreached *alert.Unreached // has told of the store before Run; nil: nothing has

	mu    sync.Mutex     // guards named
	named *config.Config // where the secrets of all generations are
}

// generation is a loaded configuration with its jobs and opened budgets.
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
		d.site = d.pages()
		d.door = d.doorTo(d.site)
	}
	d.notices = newNotices(d.log, o.Now, !o.Once)
	return d
}

// Read reads the configuration and its jobs. The error is that of [Options.Read].
func (d *Daemon) Read() (*config.Config, []*jobs.Job, error) {
	d.file.mark() // whatever is written from now on is a change
	return d.o.Read()
}

// Begin puts the first generation in force on an opened store. storeURL is empty unless
// the store is another than the configuration's.
func (d *Daemon) Begin(cfg *config.Config, list []*jobs.Job, store open.Backend, storeURL string) error {
	d.storeURL = storeURL
	d.timeout = open.Timeout(d.storeAt(cfg), cfg.Store)
	d.metrics = newMetrics(nil, d.timeout, d.o.Version)
	d.metrics.limits.store = d.storeAt(cfg)
	d.metrics.top.follow(func(ctx context.Context, n int) ([]budget.Status, error) {
		top, _, err := d.readerNow().Top(ctx, n)
		return top, err
	})
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

// open opens the budgets of the jobs, and if the daemon serves charges or has alerts all others
// of the configuration too, with those that alerts name of a credential "*". It does not ask the
// store anything.
func (d *Daemon) open(cfg *config.Config, list []*jobs.Job) (*generation, error) {
	var names []string
	if d.servers != nil || len(cfg.Alerts) > 0 {
		names = cfg.Budgets()
	}
	for _, a := range cfg.Alerts {
		for _, name := range a.Budgets {
			if _, _, err := cfg.Find(name); err == nil { // a name, not a pattern: a credential "*" may admit it
				names = append(names, name)
			}
		}
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
		if g.budgets[name], err = d.Budget(cfg, name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Budget opens a budget of a configuration on the daemon's store, which stays open.
func (d *Daemon) Budget(cfg *config.Config, name string) (*budget.Budget, error) {
	return open.BudgetOn(d.store, cfg, d.storeAt(cfg), name, budget.WithLog(d.log))
}

// takeOver puts a generation in force. Passes and requests under way keep the budgets
// that they have.
func (d *Daemon) takeOver(g *generation) {
	grace := time.Duration(0)
	for _, job := range g.jobs {
		grace = max(grace, job.Grace)
	}
	d.stop.Store(max(d.stop.Load(), int64(StopTakes(grace, d.timeout))))
	d.current.Store(g)
	d.metrics.take(g.budgets, g.jobs)
	d.metrics.expect(g.jobs)
	if d.servers != nil {
		d.servers.swap(d.decisions(g))
	}
}

// forecastKept is how long a forecast serves all who ask for an overview: several people may watch
// one daemon, and a forecast costs more than all else.
const forecastKept = 30 * time.Second

// decisions makes the server for the budgets that are open and those that a credential
// "*" admits.
func (d *Daemon) decisions(g *generation) *serve.Server {
	connections := int64(openAtOnce())
	reader := d.reader(g)
	reader.Keeps = forecastKept
	return serve.New(serve.Options{
		Budgets: slices.Collect(maps.Values(g.budgets)),
		Open: func(name string) (*budget.Budget, error) {
			return d.Budget(g.config, name)
		},
		Token: d.o.Endpoint.token, ReadToken: d.o.Endpoint.readToken, Loopback: d.o.Endpoint.loopback, Log: d.log,
		Overview: func(ctx context.Context, names []string) (answer.Overview, error) {
			if len(names) == 0 {
				names = reader.Budgets()
			}
			seen, err := reader.Overview(ctx, names)
			return seen.JSON(), err
		},
		Leased:   d.metrics.leased,
		UnderWay: max(1, serve.DefaultUnderWay*connections/mostConnections), Waiting: max(1, serve.DefaultWaiting*connections/mostConnections),
	})
}

// Run runs until drain is closed and everything under way has ended, or until ctx ends.
// Each signal on hangups causes a reload. If listening fails, the error may be an
// [*EndpointError].
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
			metrics: d.metrics, servers: d.servers, door: d.door, drain: drain, timeout: d.timeout,
			budgets: d.Budgets,
		}
		under, failed := serving.serve(ctx, d.o.Endpoint, d.log)
		if failed != nil {
			return failed
		}
		options.DecisionsURL = under.called
		helpers.Go(func() { d.site.Follow(until) })
		defer func() {
			cancel()
			helpers.Wait()
			err = errors.Join(err, under.stop())
		}()
		drain = d.drainWith(until, drain, under.over, &helpers)
	}
	defer d.ping(&options)()
	runner, err := jobs.New(d.current.Load().jobs, options)
	if err != nil {
		return err
	}
	helpers.Go(func() { d.notices.watch(until, drain, &d.metrics.pulse, d.jobs) })
	helpers.Go(func() { d.follow(until, drain, hangups, runner) })
	if !d.o.Sandbox {
		watcher := d.watcher(options.State, d.current.Load)
		helpers.Go(func() { watcher.Run(ctx, until) })
	}
	return runner.Run(ctx, drain, d.o.StartNow)
}

// drainWith returns a channel that is closed when drain is, or when listening fails: a
// daemon that cannot be reached drains, so that its supervisor restarts it.
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

// jobs returns the jobs in force.
func (d *Daemon) jobs() []*jobs.Job { return d.current.Load().jobs }

// Stopping notifies the service manager that the daemon is stopping and how long that may
// take. Any goroutine may call it, even before a generation is in force.
func (d *Daemon) Stopping() { d.notices.stopping(d.stopTakes()) }

// Close closes the budgets in force, all at once: what they know and have not told the store
// yet is not lost.
func (d *Daemon) Close() { closeAll(d.Budgets(), d.log) }

func closeAll(budgets map[string]*budget.Budget, log *slog.Logger) {
	var closing sync.WaitGroup
	for name, b := range budgets {
		closing.Go(func() {
			if err := b.Close(); err != nil {
				log.Warn("a budget could not tell the store all that it knows", "budget", name, "error", err)
			}
		})
	}
	closing.Wait()
}

// Budgets returns the budgets in force, by name.
func (d *Daemon) Budgets() map[string]*budget.Budget { return d.current.Load().budgets }

// storeAt is the URL of the store to use with a configuration.
func (d *Daemon) storeAt(cfg *config.Config) string { return cmp.Or(d.storeURL, cfg.Store.URL) }

// stopTakes is how long a stop may take.
func (d *Daemon) stopTakes() time.Duration {
	return max(time.Duration(d.stop.Load()), StopTakes(0, 0))
}

// storeCloses is how long closing a store may take, in addition to its timeout.
const storeCloses = 5 * time.Second

// StopTakes is the longest that a stop may take: passes under way use their grace and are
// recorded, alerts that are due are tried, requests under way are answered, and the store is
// closed.
func StopTakes(grace, storeTimeout time.Duration) time.Duration {
	return grace + jobs.EndTakes + alert.StopTakes + lastRequest + storeTimeout + storeCloses + storeTimeout
}

// remember adds the places of a configuration's secrets. It keeps the earlier ones:
// commands may still have those secrets in their environment.
func (d *Daemon) remember(cfg *config.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := config.Upstream{}
	if d.named != nil {
		all = d.named.Upstreams[0]
	}
	places := cfg.SecretPlaces()
	for _, upstream := range cfg.Upstreams {
		places = append(places, upstream.Credentials...)
	}
	for _, place := range places {
		same := func(c config.Credential) bool {
			return c.SecretEnv == place.SecretEnv && c.SecretFile == place.SecretFile
		}
		if !slices.ContainsFunc(all.Credentials, same) {
			all.Credentials = append(all.Credentials, place)
		}
	}
	d.named = &config.Config{Store: cfg.Store, Upstreams: []config.Upstream{all}}
}

// Secrets returns the secrets that can be read now. No command's output may contain one.
// It is for [jobs.Options].
func (d *Daemon) Secrets() []string {
	d.mu.Lock()
	named := d.named
	d.mu.Unlock()
	known := append(jobs.KnownSecrets(named, d.o.Env), secret.OfURL(named.Store.URL)...)
	known = append(known, secret.OfURL(d.storeURL)...)
	if e := d.o.Endpoint; e != nil {
		for _, token := range []string{e.token, e.readToken} {
			if token != "" {
				known = append(known, token)
			}
		}
	}
	return known
}
