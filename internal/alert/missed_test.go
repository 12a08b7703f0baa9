package alert

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

const byCron = costs + `
[job.nightly]
started_by = "cron"
budget = "shop/main"
schedule = "0 3 * * *"
timezone = "UTC"
regions = ["US", "GB"]
[alert.team]
url_env = "HOOK"
on = ["missed", "failed"]
`

// Alerts report a run that cron does not start once, and that the job runs again. A failure ends
// once the runs of all regions have succeeded.
func TestMissed(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, byCron)
		w.jobs = w.jobs[len(w.jobs)-1:]
		defer w.daemon()()
		runner := must.Get(jobs.New(w.jobs, jobs.Options{State: w.store, Budgets: w.budgets}))(t)
		run := func(region string, code int) {
			pass, err := runner.Outside(t.Context(), w.jobs[0], region, func(context.Context, jobs.OutsideRun) jobs.OutsideEnd {
				return jobs.OutsideEnd{Code: code, Seen: true}
			})
			check.NoError(t, err)
			check.Equal(t, pass.Kind, jobs.Scheduled, "kind")
		}
		night := func(n int) { // until three o'clock
			time.Sleep(time.Until(time.Now().Truncate(24*time.Hour).AddDate(0, 0, n).Add(3*time.Hour + time.Second)))
		}
		night(0)
		if time.Now().Hour() != 3 {
			night(1)
		}
		run("US", 0)
		run("GB", 0)
		time.Sleep(time.Hour)
		w.tells()
		night(1)
		time.Sleep(14 * time.Minute)
		w.tells()
		time.Sleep(2 * time.Minute)
		w.tells("missed begin")
		check.Contains(t, w.hook.messages()[0].Text, "cron has not started quotactl meter --job nightly")
		night(1)
		time.Sleep(time.Hour) // no second alert
		w.tells("missed begin")
		night(1)
		run("US", 3)
		time.Sleep(time.Minute)
		w.tells("missed begin", "failed begin") // GB is missing still
		run("GB", 0)
		time.Sleep(time.Minute)
		w.tells("missed begin", "failed begin", "missed end")
		night(1)
		run("GB", 0)
		time.Sleep(time.Minute)
		w.tells("missed begin", "failed begin", "missed end")
		run("US", 0)
		time.Sleep(time.Minute)
		w.tells("missed begin", "failed begin", "missed end", "failed end")
	})
}
