package daemon

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/jobs"
)

// nearMissParts is the number of parts into which a limit is divided: a grant that leaves one of
// them or less is a near miss.
const nearMissParts = 20

// otherOperation is the label of all operations without a price, so that the number of
// labels stays bounded.
const otherOperation = "other"

// metrics counts what the daemon does. It observes the jobs and, through meteredStore,
// the store. All labels are names from the configuration.
type metrics struct {
	registry *prometheus.Registry
	known    atomic.Pointer[map[string]map[string]bool] // the priced operations, by budget

	decisions, units, nearMisses *prometheus.CounterVec
	leasedTakes, leasedUnits     *prometheus.CounterVec
	observed, drift, unread      *prometheus.CounterVec
	remembered                   *prometheus.CounterVec
	passes, runs, missed         *prometheus.CounterVec
	store, lateness, upstream    *prometheus.HistogramVec
	breaker, loaded              prometheus.Gauge
	reloads                      *prometheus.CounterVec
	alerts, pings                *prometheus.CounterVec
	limits                       *limitCollector
	top                          *topCollector
	refused                      *refusedCollector
	http                         *httpMetrics
	jobs                         *jobCollector // nil until Run

	pulse pulse
}

// newMetrics makes the metrics for the budgets of a configuration.
func newMetrics(budgets map[string]*budget.Budget, timeout time.Duration, version string) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "quotactl", Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(), pulse: pulse{first: make(chan struct{})}, limits: newLimitCollector(timeout), top: newTopCollector(), http: newHTTPMetrics(),
		decisions:   counter("decisions_total", "Charges decided by this process, by result.", "budget", "operation", "result", "source"),
		units:       counter("units_total", "Units charged by this process.", "budget", "operation"),
		nearMisses:  counter("near_misses_total", "Charges granted that left at most 5 % of the limit.", "budget", "limit"),
		leasedTakes: counter("leased_takes_total", "Requests that were granted from a lease, without a decision of the store.", "budget", "operation"),
		leasedUnits: counter("leased_units_total", "Units that requests took from leases.", "budget", "operation"),
		observed:    counter("observed_total", "Charges granted only because of observe mode, by the limit that would have refused.", "budget", "limit"),
		remembered:  counter("remembered_total", "Refusals that this process gave again from memory, without asking the store.", "budget", "operation"),
		drift:       counter("drift_units_total", "Units that upstreams reported as used to this process and that no charge explains.", "budget", "limit"),
		unread:      counter("unread_total", "Values in upstreams' responses that this process could not read, by what they should have said.", "budget", "operation", "what"),
		passes:      counter("passes_total", "Passes ended, by outcome.", "job", "outcome"),
		missed:      counter("ticks_missed_total", "Ticks without a run: no daemon took them in time, or cron did not start it.", "job"),
		runs:        counter("runs_total", "Runs ended or not started, by outcome.", "job", "region", "outcome"),
		store: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "quotactl", Name: "store_seconds", Help: "How long the store took to answer, by call.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2},
		}, []string{"call"}),
		upstream: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "quotactl", Name: "upstream_seconds", Help: "How long an upstream took until the header of its response, in requests of this process's fetch jobs.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"budget", "operation"}),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "quotactl", Name: "tick_lateness_seconds", Help: "How long after its tick a pass was started.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 30, 60, 300, 3600},
		}, []string{"job"}),
		breaker: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "quotactl", Name: "breaker_open", Help: "1 while this process, or the whole host, treats the store as out of reach.",
		}),
		alerts:  counter("alert_deliveries_total", "Tries of this process to deliver the messages of an alert, by result.", "alert", "result"),
		pings:   counter("job_pings_total", "Pings of this process, by result.", "job", "result"),
		reloads: counter("config_reloads_total", "Reloads of the configuration, by outcome.", "outcome"),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "quotactl", Name: "config_loaded_timestamp_seconds", Help: "When the configuration in force was loaded, in seconds since the Unix epoch.",
		}),
	}
	m.refused = newRefusedCollector(m, timeout)
	m.known.Store(&map[string]map[string]bool{})
	m.admit(budgets, nil)
	m.take(budgets, nil)
	m.loaded.SetToCurrentTime()
	for _, outcome := range []string{"succeeded", "failed"} { // an alert sees the first failure only as an increase from 0
		m.reloads.WithLabelValues(outcome)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "quotactl", Name: "build_info", Help: "Always 1; the label is the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.http.register(m.registry)
	m.registry.MustRegister(m.decisions, m.units, m.nearMisses, m.leasedTakes, m.leasedUnits, m.observed, m.remembered, m.drift, m.unread, m.passes, m.missed, m.runs, m.store, m.lateness, m.upstream, m.breaker, m.reloads, m.loaded, m.alerts, m.pings, info,
		m.limits, m.top, m.refused, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// budget is the label of a budget.
func (m *metrics) budget(name string) string {
	if (*m.known.Load())[name] != nil {
		return name
	}
	upstream, _, _ := strings.Cut(name, "/")
	return upstream + "/" + config.AnyCredential
}

// operation is the label of an operation.
func (m *metrics) operation(budget, operation string) string {
	if (*m.known.Load())[budget][operation] {
		return operation
	}
	return otherOperation
}

// limit is the label of a limit. The limit of an unpriced operation counts as other.
func (m *metrics) limit(budget, limit string) string {
	if _, operation, own := strings.Cut(limit, ":"); own && !(*m.known.Load())[budget][operation] {
		return otherOperation
	}
	return limit
}

// leased counts a request that was granted from a lease.
func (m *metrics) leased(budget, operation string, units int64) {
	name := m.budget(budget)
	operation = m.operation(name, operation)
	m.leasedTakes.WithLabelValues(name, operation).Inc()
	m.leasedUnits.WithLabelValues(name, operation).Add(float64(units))
}

// drifted counts the drift that a report has added.
func (m *metrics) drifted(r driver.Report, d driver.Drift) {
	if name := m.budget(r.Budget); d.Added > 0 {
		m.drift.WithLabelValues(name, m.limit(name, r.Limit)).Add(float64(d.Added))
	}
}

// results are the labels of decisions.
var results = map[driver.Result]string{
	driver.Granted: "granted", driver.Refused: "exhausted", driver.NeverFits: "never_fits", driver.Conflict: "conflict",
	driver.Late: "late", driver.Overflow: "too_many_units", driver.Interrupted: "late",
	driver.Fenced: "fenced", driver.OutcomeUnknown: unavailable, driver.Unreached: unavailable,
}

// The result and the source of a charge that nobody decided.
const (
	unavailable = "unavailable"
	sourceNone  = "none"
)

// sourceOf is the label of a decision's source.
func sourceOf(d driver.Decision) string {
	switch {
	case d.Allowance:
		return budget.SourceAllowance
	case results[d.Result] == unavailable:
		return sourceNone
	}
	return budget.SourceStore
}

// decided counts the decisions of a batch; if the store failed, all are unavailable.
func (m *metrics) decided(batch driver.Batch, decisions driver.Decisions, err error) {
	name := m.budget(batch.Budget)
	for i, item := range batch.Items {
		if item.DryRun { // nothing is charged
			continue
		}
		operation := m.operation(name, item.Operation)
		if err != nil {
			m.decisions.WithLabelValues(name, operation, unavailable, sourceNone).Inc()
			continue
		}
		d := decisions.Items[i]
		result := results[d.Result]
		switch {
		case d.Replayed:
			result = "replayed"
		case d.Locked:
			result = "locked"
		case d.Recovering:
			result = "recovering"
		}
		if d.Remembered {
			m.remembered.WithLabelValues(name, operation).Inc()
		}
		if d.Observed != "" {
			m.observed.WithLabelValues(name, m.limit(name, d.Observed)).Inc()
		}
		m.decisions.WithLabelValues(name, operation, result, sourceOf(d)).Inc()
		if d.Result != driver.Granted || d.Replayed {
			continue
		}
		m.units.WithLabelValues(name, operation).Add(float64(d.Units))
		if d.Limit < 0 || d.Allowance { // an allowance that is nearly used up is no near miss
			continue
		}
		if limit := batch.Limits[d.Limit]; d.Remaining <= limit.Limit/nearMissParts {
			m.nearMisses.WithLabelValues(name, m.limit(name, limit.Name)).Inc()
		}
	}
}

// alerted counts a try to deliver a message of an alert, pinged one to call a job's ping.
func (m *metrics) alerted(name string, result alert.Result) {
	m.alerts.WithLabelValues(name, string(result)).Inc()
}

func (m *metrics) pinged(job string, result alert.Result) {
	m.pings.WithLabelValues(job, string(result)).Inc()
}

// The methods of jobs.Observer.

func (m *metrics) Looked() { m.pulse.beat() }

func (m *metrics) TickStarted(job *jobs.Job, late time.Duration) {
	m.lateness.WithLabelValues(job.Name).Observe(late.Seconds())
}

func (m *metrics) RunEnded(job *jobs.Job, region string, outcome jobs.Outcome) {
	m.runs.WithLabelValues(job.Name, region, string(outcome)).Inc()
}

func (m *metrics) PassEnded(job *jobs.Job, outcome jobs.Outcome) {
	m.passes.WithLabelValues(job.Name, string(outcome)).Inc()
}

func (m *metrics) TicksMissed(job *jobs.Job, ticks int) {
	m.missed.WithLabelValues(job.Name).Add(float64(ticks))
}

func (m *metrics) UpstreamAnswered(job *jobs.Job, operation string, took time.Duration) {
	name := m.budget(job.Budget)
	m.upstream.WithLabelValues(name, m.operation(name, operation)).Observe(took.Seconds())
}

func (m *metrics) ResponseUnread(job *jobs.Job, u budgethttp.Unread) {
	name := m.budget(job.Budget)
	m.unread.WithLabelValues(name, m.operation(name, u.Operation), string(u.What)).Inc()
}
