package main

import (
	"context"
	"os"
	"slices"
	"sync"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/gateway"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/jobs"
)

// gatewayOptions are for a command whose calls have these labels. say takes each sentence once.
func (a *app) gatewayOptions(cfg *config.Config, labels budget.Labels, budgets []string, say func(string), open func(string) (*budget.Budget, error)) gateway.Options {
	var told sync.Map // texts
	return gateway.Options{
		Config: cfg, Digest: gateway.Digest(a.configPath, a.storeAt(cfg)), Open: open, Budgets: budgets,
		Call:   budgethttp.Options{Labels: labels, Log: a.logger()},
		Secret: func(c config.Credential) string { return jobs.KnownSecret(c, a.env) },
		Env:    os.Environ(), Screen: a.errorScreen(), Log: a.logger(),
		Say: func(text string) {
			if _, again := told.LoadOrStore(text, true); !again {
				say(text)
			}
		},
	}
}

// meterJobs is for jobs.Options.Meter.
func (a *app) meterJobs(open func(*config.Config, string) (*budget.Budget, error)) func(context.Context, jobs.MeteredRun) (jobs.Meter, error) {
	return func(ctx context.Context, run jobs.MeteredRun) (jobs.Meter, error) {
		cfg := run.Job.Config()
		options := a.gatewayOptions(cfg, run.Labels, []string{run.Job.Budget}, run.Say, func(name string) (*budget.Budget, error) { return open(cfg, name) })
		options.Call.Fence, options.Env, options.StandIns = run.Fence, run.Env, run.StandIns
		g, err := gateway.Start(ctx, options)
		if err != nil {
			return nil, err
		}
		return &jobMeter{g, a, run.Job}, nil
	}
}

// jobMeter meters a run of a job.
type jobMeter struct {
	*gateway.Gateway
	app *app
	job *jobs.Job
}

// Calls implements jobs.Meter.
func (m *jobMeter) Calls() jobs.MeteredCalls {
	t := m.Tally()
	return jobs.MeteredCalls{
		Refused: t.Exhausted, StoreAway: t.StoreAway > 0, Seen: t.Saw(m.job.Budget), Lacking: t.Misconfigured,
		Lines: t.Lines(m.job.Name, m.job.Name, m.app.errorScreen(), nil),
	}
}

// guard keeps what the meters of jobs hold from other processes of this user.
func (a *app) guard(list []*jobs.Job) {
	if !slices.ContainsFunc(list, func(j *jobs.Job) bool { return j.Meter }) {
		return
	}
	if err := proc.Undumpable(); err != nil { // its memory has the CA's key, and perhaps secrets
		a.logger().Warn("other processes of this user may read the memory of this one", "error", err)
	}
	if os.Geteuid() == 0 && slices.ContainsFunc(list, func(j *jobs.Job) bool { return j.KeepSecret }) {
		a.logger().Warn("keep_secret: commands run as root, who can read every secret of this process; run it as another user")
	}
}
