package jobview

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// What is said of a job that cron starts.
func TestCron(t *testing.T) {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	timetable := must.Get(schedule.Parse("0 3 * * *", "UTC"))(t)
	job := &jobs.Job{Name: "nightly", StartedBy: jobs.StartedByCron, Schedule: timetable}
	const followed = "0 3 * * * UTC"
	for name, c := range map[string]struct {
		view  answer.Job
		state string
		want  string
	}{
		"never seen":  {answer.Job{Job: job}, "idle", "no run of it is recorded yet: write quotactl meter --job nightly -- before its command, where cron starts it"},
		"well":        {answer.Job{Job: job, Overview: jobs.Overview{Followed: followed}}, "idle", ""},
		"rescheduled": {answer.Job{Job: job, Overview: jobs.Overview{Followed: "0 4 * * * UTC"}}, "idle", "its schedule has changed; it is watched from its next run on, or once a daemon looks at it"},
		"one missing": {answer.Job{Job: job, Overview: jobs.Overview{Followed: followed, Missed: &jobs.MissedTicks{First: jobs.Instant{Time: at}, Newest: jobs.Instant{Time: at}, Ticks: 1}}},
			"missed", "its run of 2026-11-20 03:00:00Z is missing: did cron start quotactl meter --job nightly?"},
		"some missing": {answer.Job{Job: job, Overview: jobs.Overview{Followed: followed, Missed: &jobs.MissedTicks{First: jobs.Instant{Time: at}, Newest: jobs.Instant{Time: at.AddDate(0, 0, 2)}, Ticks: 3}}},
			"missed", "3 runs are missing, from 2026-11-20 03:00:00Z to 2026-11-22 03:00:00Z: does cron start quotactl meter --job nightly?"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, strings.Join(Daemons(screen.Pipe(), c.view), "\n"), c.want)
			check.Equal(t, c.view.State(), c.state)
			check.Equal(t, Unstarted([]answer.Job{c.view}, nil), false, "needs a daemon")
			check.Contains(t, Summary(screen.Pipe(), []answer.Job{c.view}, at).String(), "nightly", strings.Fields(c.want + " nightly")[0])
		})
	}
	check.Equal(t, Schedule(answer.Job{Job: job}), followed+" (cron)")
	byDaemon := answer.Job{Job: &jobs.Job{Name: "hourly", Schedule: timetable}}
	check.Equal(t, Unstarted([]answer.Job{byDaemon}, nil), true, "needs a daemon")
	check.Equal(t, Unstarted([]answer.Job{byDaemon}, []jobs.Daemon{{}}), false, "a daemon lives")
}
