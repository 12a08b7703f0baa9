package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// A single run of one job tells of all jobs of the configuration, as a daemon would.
func TestTellOnceKnowsAllJobs(t *testing.T) {
	told := make(chan string, 9)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing fails the test
		told <- string(body)
	}))
	defer hook.Close()
	env := func(name string) (string, bool) { return hook.URL, name == "HOOK" }
	d := living(t, env, "[job.stays]", "[alert.team]\nurl_env = \"HOOK\"\non = [\"failed\"]\n[job.stays]")
	g := *d.current.Load()
	g.jobs = g.jobs[:1] // run --once stays
	d.current.Store(&g)
	last := jobs.Record{Tick: jobs.Instant{Time: time.Now()}, Ended: jobs.Instant{Time: time.Now()}, Outcome: jobs.Failed}
	document := must.Get(json.Marshal(map[string]any{"last": last}))(t)
	must.Get(d.store.SwapJob(t.Context(), driver.JobSwap{Job: "goes", Text: document}))(t)
	d.TellOnce(t.Context(), &jobs.Options{State: d.store})()
	must.Equal(t, len(told), 1, "messages")
	check.Contains(t, <-told, `"job":"goes"`, "told")
}

// A budget that only an alert names is open, though it is one of a credential "*".
func TestBudgetsThatAlertsNameAreOpen(t *testing.T) {
	d := living(t, nothing, "credential.spare]", "credential.spare]\n[upstream.shop.credential.\"*\"]",
		"[job.stays]", "[alert.team]\nurl_env = \"HOOK\"\nbudgets = [\"shop/tenant7\"]\n[job.stays]")
	check.Equal(t, d.Budgets()["shop/tenant7"] != nil, true, "open")
}
