package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs"
)

// Refusals are read from the history at most once in refusedAgain, for its last hours of
// refusedSpan: what a process writes later is not counted.
const (
	refusedAgain = 15 * time.Second
	refusedSpan  = 2 * time.Hour
)

// refusedCollector counts the calls that were refused or waited, of all processes: by how much the
// history's hours have grown since the daemon first read them.
type refusedCollector struct {
	metrics         *metrics // for the labels
	timeout         time.Duration
	refused, waited *prometheus.CounterVec
	ofJob           *prometheus.CounterVec

	mu      sync.Mutex // guards all below
	budgets map[string]*budget.Budget
	jobs    map[string]bool
	read    map[string]map[driver.HistoryRow]driver.HistoryRow // by budget, by the row without its counts
	at      time.Time                                          // when it was read; zero: never
}

func newRefusedCollector(m *metrics, timeout time.Duration) *refusedCollector {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "quotactl", Name: name, Help: help}, labels)
	}
	return &refusedCollector{
		metrics: m, timeout: timeout, read: map[string]map[driver.HistoryRow]driver.HistoryRow{},
		refused: counter("refused_calls_total", "Calls that were refused for good, by any process, by the limit that refused them; an empty limit is the whole budget.", "budget", "limit", "operation"),
		waited:  counter("waited_calls_total", "Calls of any process that waited for a limit and were then granted.", "budget", "limit", "operation"),
		ofJob:   counter("job_refused_calls_total", "Calls with a job's label that were refused for good, by any process.", "budget", "job"),
	}
}

// follow makes the collector read these budgets from now on. Refusals of other jobs count as
// other.
func (c *refusedCollector) follow(budgets map[string]*budget.Budget, list []*jobs.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budgets, c.jobs, c.at = budgets, map[string]bool{"": true}, time.Time{}
	for _, job := range list {
		c.jobs[job.Name] = true
		c.ofJob.WithLabelValues(job.Budget, job.Name) // a query sees the first one only as an increase from 0
	}
	for name := range c.read {
		if budgets[name] == nil {
			delete(c.read, name)
			for _, series := range []*prometheus.CounterVec{c.refused, c.waited, c.ofJob} {
				series.DeletePartialMatch(prometheus.Labels{"budget": name})
			}
		}
	}
}

// Describe implements prometheus.Collector.
func (c *refusedCollector) Describe(to chan<- *prometheus.Desc) {
	for _, series := range []*prometheus.CounterVec{c.refused, c.waited, c.ofJob} {
		series.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *refusedCollector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= refusedAgain {
		c.at = time.Now()
		c.grow()
	}
	for _, series := range []*prometheus.CounterVec{c.refused, c.waited, c.ofJob} {
		series.Collect(to)
	}
}

// grow reads all budgets at once, and counts what is new. A budget that cannot be read within the
// store's timeout is left out. mu is held.
func (c *refusedCollector) grow() {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	type answer struct {
		budget string
		rows   []driver.HistoryRow
		err    error
	}
	answers := make(chan answer, len(c.budgets))
	for name, b := range c.budgets {
		go func() {
			rows, err := b.Refusals(ctx, refusedSpan)
			answers <- answer{name, rows, err}
		}()
	}
	for range c.budgets {
		if a := <-answers; a.err == nil {
			c.count(a.budget, a.rows)
		}
	}
}

// count adds by how much rows have grown. What was there at first is from before the daemon.
func (c *refusedCollector) count(name string, rows []driver.HistoryRow) {
	before, known := c.read[name]
	now := make(map[driver.HistoryRow]driver.HistoryRow, len(rows))
	for _, row := range rows {
		key := row
		key.Units, key.Calls, key.Refused, key.Waited = 0, 0, 0, 0
		now[key] = row
		if !known {
			continue
		}
		was := before[key]
		operation, job := c.metrics.operation(name, row.Operation), row.Job
		if !c.jobs[job] {
			job = otherOperation
		}
		if n := row.Refused - was.Refused; n > 0 {
			c.refused.WithLabelValues(name, row.Limit, operation).Add(float64(n))
			c.ofJob.WithLabelValues(name, job).Add(float64(n))
		}
		if n := row.Waited - was.Waited; n > 0 {
			c.waited.WithLabelValues(name, row.Limit, operation).Add(float64(n))
		}
	}
	c.read[name] = now
}
