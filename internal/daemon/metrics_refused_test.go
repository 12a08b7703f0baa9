package daemon

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// refusedElsewhere has another process of the store refuse calls of a job, and end.
func (w *watched) refusedElsewhere(job, operation string, times int) {
	w.t.Helper()
	other := must.Get(budget.New(w.metered.Backend, w.b.Spec()))(w.t)
	units := int64(100)
	for range times {
		_, err := other.Charge(w.t.Context(), budget.Call{Operation: operation, Units: &units, Labels: budget.Labels{Job: job}})
		must.Is(w.t, err, budget.ErrExhausted)
	}
	must.Do(w.t, other.Close())
	w.readAgain()
}

// readAgain has the next scrape read the refusals.
func (w *watched) readAgain() {
	w.m.refused.mu.Lock()
	defer w.m.refused.mu.Unlock()
	w.m.refused.at = time.Time{}
}

// A scrape has the refusals of every process, once: what was refused before it first looked is
// left out, and so are names that the configuration does not have.
func TestRefusalsOfOtherProcesses(t *testing.T) {
	w := watch(t, nil)
	w.m.take(map[string]*budget.Budget{"shop/main": w.b}, []*jobs.Job{{Name: "nightly", Budget: "shop/main"}})
	must.Do(t, w.charge("get", 100))
	w.refusedElsewhere("nightly", "get", 5)
	w.has(`quotactl_job_refused_calls_total{budget="shop/main",job="nightly"} 0`)
	w.refusedElsewhere("nightly", "get", 2)
	w.refusedElsewhere("adhoc", "unpriced", 3)
	w.refusedElsewhere("", "export", 1)
	for range 2 {
		w.has(
			`quotactl_refused_calls_total{budget="shop/main",limit="daily",operation="get"} 2`,
			`quotactl_refused_calls_total{budget="shop/main",limit="daily",operation="other"} 3`,
			`quotactl_refused_calls_total{budget="shop/main",limit="daily",operation="export"} 1`,
			`quotactl_job_refused_calls_total{budget="shop/main",job="nightly"} 2`,
			`quotactl_job_refused_calls_total{budget="shop/main",job="other"} 3`,
			`quotactl_job_refused_calls_total{budget="shop/main",job=""} 1`,
			`quotactl_ledger_entries{budget="shop/main"} 1`,
		)
		w.readAgain()
	}
	must.Get(driver.Apply(t.Context(), w.metered.Backend, driver.Refusals{Budget: "shop/main", Now: time.Now().UnixMicro(), Counts: []driver.RefusalCount{
		{Hour: driver.HourOf(time.Now().UnixMicro()), Limit: "daily", Operation: "get", Waited: 4},
	}}))(t)
	w.readAgain()
	w.has(`quotactl_waited_calls_total{budget="shop/main",limit="daily",operation="get"} 4`)
	w.m.take(map[string]*budget.Budget{}, nil)
	_, page := w.get("/metrics")
	check.Equal(t, grep(page, "refused_calls"), "", "after a reload without the budget")
}
