package daemon

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// succeeded makes scrapes show two jobs: one has succeeded at the returned instant, the
// other is paused. again makes the next scrape read them again.
func (w *watched) succeeded() (at time.Time, again func()) {
	w.t.Helper()
	at = time.UnixMicro(1_780_000_000_123_456)
	document := fmt.Appendf(nil, `{"last_success":%d}`, at.UnixMicro())
	if swapped, err := w.metered.SwapJob(w.t.Context(), driver.JobSwap{Job: "pull", Text: document}); err != nil || !swapped {
		w.t.Fatal(swapped, err)
	}
	list := []*jobs.Job{{Name: "pull"}, {Name: "push"}}
	if _, _, _, err := jobs.SetPause(w.t.Context(), w.metered, list[1], ""); err != nil {
		w.t.Fatal(err)
	}
	c := newJobCollector(w.metered, func() []*jobs.Job { return list }, watchTimeout)
	w.m.follow(c)
	return at, func() { c.at = time.Time{} }
}

// The series that alerts count begin at 0, so that an alert sees the first event too. One
// alert reports passes without enough units, one a job that has never succeeded.
func TestAlertsHearOfTheFirstTime(t *testing.T) {
	w := watch(t, nil)
	w.m.expect([]*jobs.Job{{Name: "pull", Regions: []string{"US"}}})
	_, page := w.get("/metrics")
	heard := map[string]bool{}
	for _, expr := range alertExprs(t) {
		for _, found := range regexp.MustCompile(`increase\(quotactl_(passes|runs)_total\{outcome=~?"([a-z_|]+)"`).FindAllStringSubmatch(expr, -1) {
			for outcome := range strings.SplitSeq(found[2], "|") {
				heard[found[1]+" "+outcome] = true
				first := regexp.MustCompile(`(?m)^quotactl_` + found[1] + `_total\{job="pull",outcome="` + outcome + `"(,region="US")?\} 0$`)
				if !first.MatchString(page) {
					t.Errorf("no 0 of what %s hears of:\n%s", expr, grep(page, "quotactl_"))
				}
			}
		}
		heard["never"] = heard["never"] || strings.HasPrefix(expr, "min by (job) (quotactl_job_paused) == 0 unless on (job) ") &&
			strings.HasSuffix(expr, "(quotactl_job_last_success_timestamp_seconds)")
	}
	for _, what := range []string{"passes exhausted", "runs failed", "never"} {
		if !heard[what] {
			t.Errorf("no alert hears of %s: %v", what, heard)
		}
	}
}

// The metrics of jobs come from the store, whichever daemon ran the jobs.
func TestMetricsOfJobs(t *testing.T) {
	w := watch(t, nil)
	at, again := w.succeeded()
	success := fmt.Sprintf(`quotactl_job_last_success_timestamp_seconds{job="pull"} %v`, float64(at.UnixMicro())/1e6)
	w.has(success, `quotactl_job_paused{job="pull"} 0`, `quotactl_job_paused{job="push"} 1`)
	if _, text := w.get("/metrics"); grep(text, `last_success_timestamp_seconds{job="push"}`) != "" {
		t.Error("a job that never succeeded has a last success")
	}
	must.Get(jobs.EndPause(t.Context(), w.metered, &jobs.Job{Name: "push"}))(t)
	w.has(`quotactl_job_paused{job="push"} 1`) // as it was read
	again()
	w.has(success, `quotactl_job_paused{job="push"} 0`)
}
