package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// noon is when the jobs of tests are looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// ago is an instant so long before noon.
func ago(d time.Duration) jobs.Instant { return jobs.Instant{Time: noon.Add(-d)} }

// viewed is a job with a schedule, as a view at noon has it.
func viewed(t *testing.T, name, budget, s, zone string) answer.Job {
	t.Helper()
	parsed := must.Get(schedule.Parse(s, zone))(t)
	v := answer.Job{Job: &jobs.Job{Name: name, Budget: budget, Schedule: parsed}, NextTick: parsed.Next(noon)}
	v.Followed = s + " " + zone
	return v
}

// allStates are jobs of all that there may be to say of one.
func allStates(t *testing.T) []answer.Job {
	t.Helper()
	record := func(outcome jobs.Outcome, ended jobs.Instant, units int64) *jobs.Record {
		return &jobs.Record{Tick: ago(24 * time.Hour), Outcome: outcome, Ended: ended, Units: units}
	}
	idle := viewed(t, "idle", "shop/main", "0 */3 * * *", "UTC")
	idle.LastPass = record(jobs.Exhausted, ago(47*time.Minute+900*time.Millisecond), 32)
	idle.LastSuccess = ago(3 * time.Hour).Time
	idle.Expected = &jobs.Needs{Regions: []jobs.RegionNeeds{
		{Region: "US", Estimate: needs.Estimate{Source: needs.Learned, Runs: 5, Amounts: []needs.Amount{{Operation: "get", Units: 30, Calls: 30}}}},
		{Region: "DE", Estimate: needs.Estimate{Source: needs.Learned, Runs: 9, Amounts: []needs.Amount{{Operation: "get", Units: 12, Calls: 12}}}},
	}}
	star := viewed(t, "star", "shop/any", "@every 90s", "UTC")
	star.LastPass = record(jobs.Missed, jobs.Instant{}, 0) // no pass began
	runs := viewed(t, "runs", "shop/main", "30 2 * * *", "Asia/Tokyo")
	runs.Active = []jobs.ActivePass{{Tick: ago(time.Hour), Kind: jobs.CaughtUp, Since: ago(time.Minute), Host: "in process 7 on web1"}}
	runs.Progress = []*jobs.Record{{Runs: []jobs.Run{{Outcome: jobs.Failed, Units: 3}, {Units: 1}, {}}}}
	runs.Waiting = []jobs.WaitingTick{{Tick: ago(time.Minute), Kind: jobs.Queued}}
	twice := viewed(t, "twice", "shop/main", "0 * * * *", "UTC")
	twice.Active = []jobs.ActivePass{runs.Active[0], runs.Active[0]}
	twice.Progress = []*jobs.Record{nil, nil}
	silent := viewed(t, "silent", "shop/main", "0 * * * *", "UTC")
	silent.Active = []jobs.ActivePass{{Tick: ago(time.Hour), Kind: jobs.Triggered, Since: ago(time.Hour), Host: "in process 8 on web2", Silent: true, Note: "requested by ann@web1: a try"}}
	silent.Progress = []*jobs.Record{nil}
	paused := viewed(t, "paused", "shop/main", "0 0 * * *", "UTC")
	paused.Pause = &jobs.Pause{Note: "until Friday", By: "ann@web1", At: ago(time.Hour)}
	paused.Requests = []jobs.Request{{By: "bob@web2", At: ago(time.Minute), Note: "a try", Regions: []string{"US", "DE"}}, {By: "bob@web2", At: ago(time.Minute)}}
	late := viewed(t, "late", "shop/main", "0 * * * *", "UTC")
	late.Waiting = []jobs.WaitingTick{{Tick: ago(5 * time.Hour), Kind: jobs.CaughtUp}, {Tick: ago(4 * time.Hour), Kind: jobs.CaughtUp}, {Tick: ago(2 * time.Hour), Kind: jobs.Scheduled}}
	late.Untaken = ago(time.Hour).Time
	fresh := viewed(t, "fresh", "shop/main", "0 12 * * 1", "UTC")
	fresh.Followed = ""
	other := viewed(t, "other", "shop/main", "0 * * * *", "UTC")
	other.Followed, other.NextTick = "5 * * * * UTC", time.Time{}
	return []answer.Job{idle, star, runs, twice, silent, paused, late, fresh, other}
}

func TestJobsTable(t *testing.T) {
	const want = `shop/main
  limit calls: 1.5 calls an hour since 2026-10-25 06:00:00Z; at this rate empty
  at 2026-10-25 16:00:00Z, resets at 2026-10-25 23:00:00Z
JOB     NEXT IN  STATE        LAST PASS          UNITS  SCHEDULE
idle    3h       idle         exhausted 47m ago     32  0 */3 * * * UTC
  units that a pass needs: 42 learned
runs    5h30m    running 1/3  -                      -  30 2 * * * Asia/Tokyo
  the pass of 2026-11-20 11:00:00Z is under way since 2026-11-20 11:59:00Z, in
  process 7 on web1: 1/3 runs ended, 4 units; caught up: nobody took its tick in
  time
  the tick of 2026-11-20 11:59:00Z waits
twice   1h       2 passes     -                      -  0 * * * * UTC
  the pass of 2026-11-20 11:00:00Z is under way since 2026-11-20 11:59:00Z, in
  process 7 on web1; caught up: nobody took its tick in time
  the pass of 2026-11-20 11:00:00Z is under way since 2026-11-20 11:59:00Z, in
  process 7 on web1; caught up: nobody took its tick in time
silent  1h       silent       -                      -  0 * * * * UTC
  the pass of 2026-11-20 11:00:00Z is under way since 2026-11-20 11:00:00Z, in
  process 8 on web2; requested by ann@web1: a try; its process stopped renewing
  its claim
paused  12h      paused       -                      -  0 0 * * * UTC
  paused by ann@web1 since 2026-11-20 11:00:00Z: until Friday; its ticks are
  skipped, the next at 2026-11-21 00:00:00Z
  a pass of US, DE was requested by bob@web2 at 2026-11-20 11:59:00Z (a try) and
  waits
  a pass was requested by bob@web2 at 2026-11-20 11:59:00Z and waits
late    1h       waiting      -                      -  0 * * * * UTC
  the tick of 2026-11-20 10:00:00Z waits
  2 ticks, from 2026-11-20 07:00:00Z on, wait to be caught up
  no daemon has taken its tick of 2026-11-20 11:00:00Z: is one running?
fresh   3d0h     idle         -                      -  0 12 * * 1 UTC
  no daemon has looked at it on this store yet
other   -        idle         -                      -  0 * * * * UTC
  daemons have followed another schedule so far: 5 * * * * UTC

shop/any
JOB   NEXT IN  STATE  LAST PASS       UNITS  SCHEDULE
star  1m30s    idle   missed 24h ago      0  @every 90s UTC

No daemon is running on this store. Start one: quotactl run
`
	var b strings.Builder
	must.Do(t, writeText(&b, jobview.Jobs(screen.Pipe(), noon, nil, everything(t).Budgets, allStates(t), nil)))
	check.Equal(t, b.String(), want, "jobs")
	var living strings.Builder
	must.Do(t, writeText(&living, jobview.Jobs(screen.Pipe(), noon, []jobs.Daemon{{Host: "in process 7 on web1", Since: ago(time.Hour)}}, everything(t).Budgets, allStates(t), nil)))
	if strings.Contains(living.String(), "No daemon is running") {
		t.Errorf("jobs\n%s", living.String())
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if utf8.RuneCountInString(line) > table.Width {
			t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

func TestJobsJSON(t *testing.T) {
	const want = `{
  "at": "2026-11-20T12:00:00.000000Z",
  "store": "redis://h:1",
  "daemons": [
    {
      "host": "in process 7 on web1",
      "since": "2026-11-20T11:00:00.000000Z"
    }
  ],
  "budgets": [
    {
      "budget": "shop/main",
      "limits": [
        {
          "name": "daily",
          "rate": null
        },
        {
          "name": "calls",
          "rate": {
            "units_per_hour": 1.5,
            "charges": 9,
            "since": "2026-10-25T06:00:00.000000Z",
            "empty_at": "2026-10-25T16:00:00.000000Z",
            "resets_at": "2026-10-25T23:00:00.000000Z"
          }
        }
      ]
    }
  ],
  "jobs": [
    {
      "job": "idle",
      "budget": "shop/main",
      "schedule": "0 */3 * * *",
      "timezone": "UTC",
      "started_by": "daemon",
      "next": "2026-11-20T15:00:00.000000Z",
      "paused": null,
      "active": [],
      "waiting": [],
      "requests": [],
      "deferred": [],
      "last": {
        "tick": "2026-11-20T09:00:00.000000Z"
      },
      "last_success": "2026-11-20T09:00:00.000000Z",
      "followed": "0 */3 * * * UTC",
      "untaken": null,
      "missed": null
    },
    {
      "job": "paused",
      "budget": "shop/main",
      "schedule": "0 0 * * *",
      "timezone": "UTC",
      "started_by": "daemon",
      "next": "2026-11-21T00:00:00.000000Z",
      "paused": {
        "note": "until Friday",
        "by": "ann@web1",
        "at": "2026-11-20T11:00:00.000000Z"
      },
      "active": [
        {
          "tick": "2026-11-20T11:00:00.000000Z",
          "kind": "trigger",
          "since": "2026-11-20T11:00:00.000000Z",
          "host": "in process 8 on web2",
          "silent": true,
          "request": "ABC",
          "note": "requested by ann@web1: a try",
          "progress": null
        }
      ],
      "waiting": [
        {
          "tick": "2026-11-20T07:00:00.000000Z",
          "kind": "catch_up"
        }
      ],
      "requests": [
        {
          "id": "DEF",
          "by": "bob@web2",
          "at": "2026-11-20T11:59:00.000000Z",
          "note": "a try",
          "regions": [
            "US"
          ]
        }
      ],
      "deferred": [
        {
          "tick": "2026-11-20T06:00:00.000000Z",
          "part": 2,
          "at": "2026-11-20T15:00:00.000000Z",
          "regions": [
            "GB",
            "DE"
          ]
        }
      ],
      "last": null,
      "last_success": null,
      "followed": null,
      "untaken": "2026-11-20T11:00:00.000000Z",
      "missed": null
    }
  ]
}
`
	idle := viewed(t, "idle", "shop/main", "0 */3 * * *", "UTC")
	idle.Last = []byte(`{"tick":"2026-11-20T09:00:00.000000Z"}`)
	idle.LastSuccess = ago(3 * time.Hour).Time
	paused := viewed(t, "paused", "shop/main", "0 0 * * *", "UTC")
	paused.Pause = &jobs.Pause{Note: "until Friday", By: "ann@web1", At: ago(time.Hour)}
	paused.Active = []jobs.ActivePass{{
		Tick: ago(time.Hour), Kind: jobs.Triggered, Since: ago(time.Hour), Host: "in process 8 on web2", Silent: true,
		Request: "ABC", Note: "requested by ann@web1: a try",
	}}
	paused.Waiting = []jobs.WaitingTick{{Tick: ago(5 * time.Hour), Kind: jobs.CaughtUp}}
	paused.Requests = []jobs.Request{{ID: "DEF", By: "bob@web2", At: ago(time.Minute), Note: "a try", Regions: []string{"US"}}}
	paused.Deferred = []jobs.DeferredPass{{Tick: ago(6 * time.Hour), Part: 2, At: ago(-3 * time.Hour), Regions: []string{"GB", "DE"}}}
	paused.Followed, paused.Untaken = "", ago(time.Hour).Time
	var b strings.Builder
	must.Do(t, writeJSON(&b, answer.NewJobs(noon, "redis://h:1", []jobs.Daemon{{Host: "in process 7 on web1", Since: ago(time.Hour)}}, everything(t).Budgets, []answer.Job{idle, paused}, nil)))
	check.Equal(t, b.String(), want, "jobs")
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 23*time.Millisecond + 400*time.Microsecond: "23ms", 9*time.Second + 940*time.Millisecond: "9.9s",
		61*time.Second + 600*time.Millisecond: "1m2s", 47 * time.Minute: "47m", 2*time.Hour + 13*time.Minute + 20*time.Second: "2h13m",
		47*time.Hour + 59*time.Minute: "47h59m", 76*time.Hour + 40*time.Minute: "3d5h", 30 * 24 * time.Hour: "30d0h",
	} {
		check.Equal(t, view.Roughly(d), want, d, "is shown as")
	}
}
