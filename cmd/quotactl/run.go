package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// runFlags are the flags of run.
type runFlags struct {
	once, now, sandbox, json bool
	upstream                 sandbox.Config
	listen                   daemon.Listen
	endpoint                 *daemon.Endpoint // where it listens; nil: nowhere
}

func newRunCommand(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [--once [JOB...]]",
		Short: "Run the jobs on their schedules, or once",
		Example: `  quotactl run
  quotactl run --once --sandbox
  quotactl run --once trending --json`,
		Long: `Run the jobs on their schedules until SIGTERM or Ctrl-C. Then no further page
starts, pages under way finish within the jobs' grace, and the exit code is 0. A
second signal stops at once, with exit code 130. The configuration is reloaded
on SIGHUP and when its file changes, unless it has errors (docs/operations.md).

--once runs one pass now of each job, or of those named. A pass that runs out of
units is exhausted, which is not a failure; a failed run makes the exit code 1,
or 69 where the store alone is why.
Such passes replace no scheduled tick.

--listen also answers charges of programs in any language, over HTTP
(docs/http.md); without jobs in the configuration it does only that. An address
that other machines can reach needs a token and a certificate. The read token
lets its holders look and not spend. Browsers get pages; with --allow-actions,
people who sign in with the token may also act there.

--sandbox fetches from a fake YouTube in this process; no key is needed. Its
store (sandbox.db) and request log (sandbox.log) are beside the configuration,
and are used again the next time.`,
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			switch {
			case len(names) > 0 && !f.once:
				return usage("jobs can be named only with --once: quotactl run --once %s", strings.Join(names, " "))
			case f.json && !f.once:
				return usage("--json needs --once; for the daemon's log use --log-format json")
			case f.listen.At != "" && f.once:
				return usage("--listen cannot be used with --once")
			case (cmd.Flags().Changed("quota") || f.upstream.ReportUsage) && !f.sandbox:
				return usage("--quota and --report-usage need --sandbox")
			case cmd.Flags().Changed("quota") && f.upstream.Quota < 1:
				return usage("--quota %d: give 1 unit or more", f.upstream.Quota)
			}
			if f.endpoint, err = f.listen.Endpoint(a.env); err != nil {
				return err
			}
			return a.runJobs(cmd.Context(), names, f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "run one pass of each job, or of those named, and exit")
	flags.BoolVar(&f.now, "now", false, "begin with a pass of each job")
	flags.BoolVar(&f.sandbox, "sandbox", false, "fetch from a built-in fake YouTube; no key is needed")
	flags.BoolVar(&f.json, "json", false, "with --once: answer in JSON")
	flags.StringVar(&f.listen.At, "listen", "", "serve charges, pages, /metrics, /healthz and /readyz at `ADDRESS`: a local port, host:port, or unix:/path")
	flags.StringVar(&f.listen.TokenEnv, "listen-token-env", "", "require the token in this environment `VARIABLE`")
	flags.StringVar(&f.listen.TokenFile, "listen-token-file", "", "require the token in this `FILE`")
	flags.StringVar(&f.listen.ReadTokenEnv, "listen-read-token-env", "", "let the token in this environment `VARIABLE` look, and not spend")
	flags.StringVar(&f.listen.ReadTokenFile, "listen-read-token-file", "", "let the token in this `FILE` look, and not spend")
	flags.BoolVar(&f.listen.AllowActions, "allow-actions", false, "let people who sign in on the pages with the token trigger, pause, cancel and lock")
	flags.StringVar(&f.listen.Cert, "listen-cert", "", "serve TLS with the certificates in this PEM `FILE`")
	flags.StringVar(&f.listen.Key, "listen-key", "", "the certificate's key, a PEM `FILE`")
	flags.Int64Var(&f.upstream.Quota, "quota", 0, fmt.Sprintf("`UNITS` that the sandbox grants per Pacific day (default %d)", sandbox.DefaultQuota))
	flags.BoolVar(&f.upstream.ReportUsage, "report-usage", false, "have the sandbox say in the headers X-RateLimit-… what the day grants and has used")
	return cmd
}

// runJobs is the command once its flags are right.
func (a *app) runJobs(ctx context.Context, names []string, f runFlags) (err error) {
	log := a.logger()
	d := daemon.New(daemon.Options{
		File: a.configPath, Read: func() (*config.Config, []*jobs.Job, error) { return a.readJobs(names, f) },
		Log: log, Env: a.env, Now: a.now, Version: version(), Endpoint: f.endpoint,
		Once: f.once, StartNow: f.now, Sandbox: f.sandbox,
	})
	asked := daemon.Hangups(!f.once)
	cfg, list, err := d.Read()
	if err != nil {
		return err
	}
	options := jobs.Options{Log: log, Now: a.now, Env: a.env, StoreURL: a.storeURL, Secrets: d.Secrets}
	ctx, drain, done := daemon.Stages(ctx, log, d.Stopping)
	defer done()
	var upstream *upstream
	if f.sandbox {
		if upstream, err = a.startSandbox(cfg, f.upstream); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, upstream.Close()) }()
		options.Sandbox = upstream.address
	}
	store, err := d.OpenStore(ctx, drain, cfg, list, func(ctx context.Context) (open.Backend, error) { return a.openStore(ctx, cfg) })
	if err != nil || store == nil { // asked to stop before the store was open
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := d.Begin(cfg, list, store, a.storeURL); err != nil {
		return err
	}
	defer d.Close()
	options.Meter = a.meterJobs(d.Budget)
	options.State, options.Budgets = store, d.Budgets()
	if f.once {
		defer d.TellOnce(ctx, &options)()
		return a.runOnce(ctx, drain, list, options, upstream, f.json)
	}
	return d.Run(ctx, drain, asked, options)
}

// readJobs reads the configuration and the jobs to run, and requires their secrets. The
// error has all faults at once.
func (a *app) readJobs(names []string, f runFlags) (*config.Config, []*jobs.Job, error) {
	cfg, list, err := a.loadConfig()
	if err != nil {
		return nil, nil, err
	}
	if list, err = a.chooseJobs(list, names, f); err != nil {
		return nil, nil, err
	}
	if !f.sandbox {
		if err := jobs.CheckSecrets(list, a.env); err != nil {
			return nil, nil, &exitError{code: exitUsage, err: err}
		}
	}
	a.guard(list)
	return cfg, list, nil
}

// chooseJobs picks the jobs named, or all. Jobs that cron starts are left out with --once, and all
// but fetch jobs where a sandbox replaces the upstreams.
func (a *app) chooseJobs(list []*jobs.Job, names []string, f runFlags) ([]*jobs.Job, error) {
	switch {
	case len(list) > 0:
	case f.endpoint != nil && !f.sandbox:
		return nil, nil // it serves decisions alone
	default:
		return nil, usage("%s has no jobs: write [job.NAME] with a budget, a schedule and a fetch table, or give --listen to serve only charges over HTTP", a.configPath)
	}
	chosen := list
	if len(names) > 0 {
		chosen = nil
		byName, known := map[string]*jobs.Job{}, make([]string, 0, len(list))
		for _, job := range list {
			byName[job.Name] = job
			known = append(known, job.Name)
		}
		for _, name := range names {
			job := byName[name]
			switch {
			case job == nil:
				return nil, usage("unknown job %q: %s has %s", name, a.configPath, strings.Join(known, ", "))
			case job.StartedBy == jobs.StartedByCron:
				return nil, usage("cron starts job %s: run its command yourself, quotactl meter --job %s -- COMMAND", name, name)
			case slices.Contains(chosen, job):
				return nil, usage("job %q is named twice; name it once", name)
			}
			chosen = append(chosen, job)
		}
	}
	var kept []*jobs.Job
	for _, job := range chosen {
		switch {
		case job.StartedBy == jobs.StartedByCron && (f.once || f.sandbox):
			a.logger().Info("job left out: cron starts it", "job", job.Name)
		case job.Fetch == nil && f.sandbox:
			a.logger().Warn("command job skipped: the sandbox serves only fetch jobs", "job", job.Name)
		default:
			kept = append(kept, job)
		}
	}
	switch {
	case len(kept) > 0:
		return kept, nil
	case f.sandbox:
		return nil, usage("there is no fetch job to run in the sandbox")
	}
	return nil, usage("cron starts all jobs of %s: run their commands yourself, quotactl meter --job JOB -- COMMAND", a.configPath)
}
