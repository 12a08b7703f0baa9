package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/jobs"
)

// succeeded has a scrape tell of two jobs: one that has succeeded, at the instant that
// is returned, and one that is paused. again has it read anew.
func (w *watched) succeeded() (at time.Time, again func()) {
	w.t.Helper()
	at = time.UnixMicro(1_780_000_000_123_456)
	document := fmt.Appendf(nil, `{"last_success":%d}`, at.UnixMicro())
	if swapped, err := w.metered.SwapJob(w.t.Context(), budget.JobSwap{Job: "pull", Text: document}); err != nil || !swapped {
		w.t.Fatal(swapped, err)
	}
	list := []*jobs.Job{{Name: "pull"}, {Name: "push"}}
	if _, _, err := jobs.SetPause(w.t.Context(), w.metered, list[1], ""); err != nil {
		w.t.Fatal(err)
	}
	c := newJobCollector(w.metered, func() []*jobs.Job { return list }, watchTimeout)
	w.m.follow(c)
	return at, func() { c.at = time.Time{} }
}

// What is scraped of the jobs is what the store says, whoever ran them.
func TestMetricsOfJobs(t *testing.T) {
	w := watch(t, nil)
	at, again := w.succeeded()
	success := fmt.Sprintf(`quotactl_job_last_success_timestamp_seconds{job="pull"} %v`, float64(at.UnixMicro())/1e6)
	w.has(success, `quotactl_job_paused{job="pull"} 0`, `quotactl_job_paused{job="push"} 1`)
	if _, text := w.get("/metrics"); grep(text, `last_success_timestamp_seconds{job="push"}`) != "" {
		t.Error("a job that never succeeded has a last success")
	}
	if _, err := jobs.EndPause(t.Context(), w.metered, &jobs.Job{Name: "push"}); err != nil {
		t.Fatal(err)
	}
	w.has(`quotactl_job_paused{job="push"} 1`) // as it was read
	again()
	w.has(success, `quotactl_job_paused{job="push"} 0`)
}
