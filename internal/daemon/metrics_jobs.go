package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/jobs"
)

// jobCollector reads the state of the jobs from the store at each scrape, so that every
// daemon reports the same, even just after its start. It leaves out what it cannot read
// within the store's timeout.
type jobCollector struct {
	state   jobs.State
	list    func() []*jobs.Job
	timeout time.Duration

	paused, success *prometheus.Desc

	mu   sync.Mutex // guards all below
	seen map[string]jobs.Overview
	at   time.Time
}

func newJobCollector(state jobs.State, list func() []*jobs.Job, timeout time.Duration) *jobCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("quotactl_job_"+name, help, []string{"job"}, nil)
	}
	return &jobCollector{
		state: state, list: list, timeout: timeout,
		paused:  desc("paused", "1 while the job is paused."),
		success: desc("last_success_timestamp_seconds", "When the last successful pass of all regions ended, in any daemon, in seconds since the Unix epoch."),
	}
}

// follow adds the jobs to the metrics.
func (m *metrics) follow(c *jobCollector) {
	m.jobs = c
	m.registry.MustRegister(c)
}

// again makes the next scrape read the jobs again, after a reload.
func (c *jobCollector) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.at = nil, time.Time{}
}

// Describe implements prometheus.Collector.
func (c *jobCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.paused
	to <- c.success
}

// Collect implements prometheus.Collector.
func (c *jobCollector) Collect(to chan<- prometheus.Metric) {
	for name, job := range c.read() {
		paused := 0.0
		if job.Pause != nil {
			paused = 1
		}
		to <- prometheus.MustNewConstMetric(c.paused, prometheus.GaugeValue, paused, name)
		if !job.LastSuccess.IsZero() {
			to <- prometheus.MustNewConstMetric(c.success, prometheus.GaugeValue, float64(job.LastSuccess.UnixMicro())/1e6, name)
		}
	}
}

// read returns the state of all jobs, at most readAgain old.
func (c *jobCollector) read() map[string]jobs.Overview {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < readAgain {
		return c.seen
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	list := c.list()
	views, err := jobs.Look(ctx, c.state, list)
	c.seen, c.at = map[string]jobs.Overview{}, time.Now()
	if err != nil { // breaker_open and store_seconds show it
		return nil
	}
	for i, job := range list {
		c.seen[job.Name] = views[i]
	}
	return c.seen
}
