package daemon

import (
	"context"
	"maps"
	"slices"

	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// watcher makes what looks for the alerts in force and delivers them.
func (d *Daemon) watcher(state jobs.State, inForce func() *generation) *alert.Watcher {
	forecast := func(ctx context.Context) ([]alert.Forecast, error) { return d.forecast(ctx, inForce()) }
	return alert.New(alert.Options{State: state, Env: d.o.Env, Log: d.log, Count: d.metrics.alerted, Forecast: forecast, After: d.unreached, Current: func() alert.Now {
		g := inForce()
		return alert.Now{Alerts: g.config.Alerts, Budgets: g.budgets, Jobs: g.jobs}
	}})
}

// forecast lists the first pass of each job that, by the plan, will lack units.
func (d *Daemon) forecast(ctx context.Context, g *generation) (list []alert.Forecast, err error) {
	now := d.o.Now()
	question, lived, err := plan.Ahead(ctx, d.store, slices.Collect(maps.Values(g.budgets)), g.jobs, now, now.Add(plan.DefaultSpan))
	if err != nil {
		return nil, err
	}
	for _, j := range question.Sums(lived) {
		if j.First != nil {
			list = append(list, alert.Forecast{Job: j.Name, Budget: j.Budget, Limit: j.First.Limit, At: j.First.At, Short: j.First.Short, NotStarted: j.First.Outcome == plan.NotStarted || j.First.Outcome == plan.Deferred, Fails: j.First.Outcome == plan.Failed, Lock: j.First.Lock})
		}
	}
	return list, nil
}

// ping has passes call the addresses of their jobs. What happens in a sandbox concerns nobody.
// The returned function makes the last pings.
func (d *Daemon) ping(options *jobs.Options) (finish func()) {
	if d.o.Sandbox {
		return func() {}
	}
	pinger := alert.NewPinger(d.o.Env, d.log, d.metrics.pinged)
	options.Ping = pinger.Pass
	return pinger.Close
}

// TellOnce prepares options for single passes: they ping, and the returned function then tells
// what there is to tell, once: of all jobs of the configuration, not only of those that ran.
func (d *Daemon) TellOnce(ctx context.Context, options *jobs.Options) (finish func()) {
	made := d.ping(options)
	return func() {
		made()
		cfg := d.current.Load().config
		if d.o.Sandbox || len(cfg.Alerts) == 0 {
			return
		}
		all, err := d.open(cfg, jobs.Load(cfg))
		if err != nil {
			d.log.Warn("the budgets of all jobs could not be opened: alerts are left to the next run", "error", err)
			return
		}
		d.watcher(options.State, func() *generation { return all }).Once(ctx)
		closeAll(all.budgets, d.log)
	}
}
