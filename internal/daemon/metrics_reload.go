package daemon

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs"
)

// admit makes the priced operations of budgets and upstreams known as labels. All budgets
// that a credential "*" admits share one label. Labels known before stay: a pass that
// began before a reload may still charge them.
func (m *metrics) admit(budgets map[string]*budget.Budget, upstreams []config.Upstream) {
	known := maps.Clone(*m.known.Load())
	add := func(name string, costs map[string]budget.Cost) {
		operations := map[string]bool{}
		maps.Copy(operations, known[name])
		for operation := range costs {
			operations[operation] = true
		}
		known[name] = operations
	}
	for name, b := range budgets {
		add(name, b.Spec().Costs)
	}
	for _, u := range upstreams {
		add(u.Name+"/"+config.AnyCredential, u.Costs)
	}
	m.known.Store(&known)
}

// take makes scrapes read these budgets, and the jobs in force, from now on.
func (m *metrics) take(budgets map[string]*budget.Budget, list []*jobs.Job) {
	m.limits.follow(budgets)
	m.refused.follow(budgets, list)
	if m.jobs != nil {
		m.jobs.again()
	}
}

// expect starts the counters that alerts use at 0: an alert sees the first event only as
// an increase from 0.
func (m *metrics) expect(list []*jobs.Job) {
	for _, job := range list {
		if job.StartedBy == jobs.StartedByCron { // its runs are of other processes
			continue
		}
		m.passes.WithLabelValues(job.Name, string(jobs.Exhausted))
		for _, region := range job.Regions {
			for _, outcome := range []jobs.Outcome{jobs.Failed, jobs.TimedOut, jobs.Lost} {
				m.runs.WithLabelValues(job.Name, region, string(outcome))
			}
		}
	}
}

// forget drops the series of budgets and jobs that a reload has removed.
func (m *metrics) forget(before, after *generation) {
	left := map[string]bool{}
	for _, job := range after.jobs {
		left[job.Name] = true
	}
	for _, job := range before.jobs {
		if left[job.Name] {
			continue
		}
		for _, series := range []*prometheus.CounterVec{m.passes, m.runs, m.missed} {
			series.DeletePartialMatch(prometheus.Labels{"job": job.Name})
		}
		m.lateness.DeletePartialMatch(prometheus.Labels{"job": job.Name})
	}
	for name := range before.budgets {
		if after.budgets[name] != nil {
			continue
		}
		m.upstream.DeletePartialMatch(prometheus.Labels{"budget": name})
		for _, series := range []*prometheus.CounterVec{m.decisions, m.units, m.leasedTakes, m.leasedUnits, m.nearMisses, m.observed, m.remembered, m.drift} {
			series.DeletePartialMatch(prometheus.Labels{"budget": name})
		}
	}
}

// reloaded counts a reload, and notes when the configuration in force was loaded.
func (m *metrics) reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues("failed").Inc()
		return
	}
	m.reloads.WithLabelValues("succeeded").Inc()
	m.loaded.Set(float64(time.Now().UnixMicro()) / 1e6)
}
