package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/rate"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/jobs"
)

// day is a calendar day in Berlin.
func day(t *testing.T) limit.Window {
	t.Helper()
	c := must.Get(limit.NewCalendar(limit.Day, "Europe/Berlin", 0))(t)
	return limit.CalendarWindow(c)
}

// everything is an overview in which all that can be shown is shown.
func everything(t *testing.T) look.Overview {
	t.Helper()
	at := time.Date(2026, 10, 25, 12, 0, 0, 123_456_000, time.UTC) // a day of 25 hours
	left := int64(0)
	status := budget.Status{Budget: "shop/main", At: at, Remaining: &left, Limits: []budget.LimitStatus{
		{
			Limit: limit.Limit{Name: "daily", Quota: 1000, Headroom: 100, Limit: 900, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
			Used:  950, Over: 50, NextReturn: at.Add(90 * time.Minute), NextAmount: 40,
		},
		{
			Limit: limit.Limit{Name: "calls", Limit: 10, Counts: limit.CountCalls, Window: day(t), Operations: []string{"a.*", "!a.b"}},
			Used:  3, Remaining: 7, Since: at.Add(-time.Hour), NextReturn: at.Add(11 * time.Hour).Truncate(time.Hour), NextAmount: 3,
			Rate: &rate.Rate{PerHour: 1.5, Charges: 9, Since: at.Truncate(time.Hour).Add(-6 * time.Hour), EmptyAt: at.Truncate(time.Hour).Add(4 * time.Hour), ResetsAt: at.Truncate(time.Hour).Add(11 * time.Hour)},
		},
	}}
	record := `{"tick":"2026-10-25T09:00:00.000000Z","outcome":"exhausted","reason":"limit","units":7,"runs":[]}`
	var last jobs.Record
	must.Do(t, json.Unmarshal([]byte(record), &last))
	since := jobs.Instant{Time: at.Add(-time.Hour)}
	return look.Overview{At: at, Store: "redis://:redacted@h:1", Budgets: []budget.Status{status}, Jobs: []answer.Job{
		{
			Job: &jobs.Job{Name: "orders", Budget: "shop/main"}, NextTick: at.Truncate(time.Hour).Add(3 * time.Hour), LastPass: &last,
			Overview: jobs.Overview{
				Last:   json.RawMessage(record),
				Active: []jobs.ActivePass{{Tick: since, Kind: jobs.Scheduled, Since: since, Host: "in process 12 on web1"}},
			},
			Progress: []*jobs.Record{{Runs: []jobs.Run{{Region: "US", Outcome: jobs.Succeeded, Units: 3}, {Region: "DE"}}}},
		},
		{
			Job: &jobs.Job{Name: "fresh", Budget: "shop/main"}, NextTick: at.Truncate(time.Hour).Add(4 * time.Hour),
			Overview: jobs.Overview{Pause: &jobs.Pause{Note: "not yet", By: "ann@web1", At: since}},
		},
	}}
}

func TestStatusTable(t *testing.T) {
	const want = `shop/main: 0 of 900 units left in limit daily
  limit calls: 1.5 calls an hour since 2026-10-25 06:00:00Z; at this rate empty
  at 2026-10-25 16:00:00Z, resets at 2026-10-25 23:00:00Z
LIMIT  KIND          COUNTS  USED  LIMIT  LEFT  OVER  NEXT RETURN
daily  rolling 24h   units    950    900     0    50  40 at 2026-10-25 13:30:01Z
calls  calendar day  calls      3     10     7     0  3 at 2026-10-25 23:00:00Z
  daily: over its limit by 50; calls are refused until that is gone
  calls: knows what was charged since 2026-10-25 11:00:01Z

JOB     BUDGET     LAST PASS                       NEXT PASS
orders  shop/main  2026-10-25 09:00:00Z exhausted  2026-10-25 15:00:00Z
  the pass of 2026-10-25 11:00:01Z is under way since 2026-10-25 11:00:01Z, in
  process 12 on web1: 1/2 runs ended, 3 units
fresh   shop/main  -                               paused
  paused by ann@web1 since 2026-10-25 11:00:01Z: not yet; its ticks are skipped,
  the next at 2026-10-25 16:00:00Z

✗ no daemon is running on this store, so the jobs' passes will not start; start
  one: quotactl run
`
	var b strings.Builder
	must.Do(t, writeText(&b, statusText(screen.Pipe(), everything(t), false)))
	check.Equal(t, b.String(), want, "status")
	for line := range strings.SplitSeq(b.String(), "\n") {
		if columns := utf8.RuneCountInString(line); columns > table.Width {
			t.Errorf("a line of %d columns: %s", columns, line)
		}
	}
}

func TestStatusJSON(t *testing.T) {
	const want = `{
  "at": "2026-10-25T12:00:00.123456Z",
  "store": "redis://:redacted@h:1",
  "budgets": [
    {
      "budget": "shop/main",
      "remaining": 0,
      "tightest": {
        "limit": "daily",
        "part_left": 0,
        "left": 0,
        "locked_until": null
      },
      "locked_until": null,
      "limits": [
        {
          "name": "daily",
          "kind": "rolling",
          "quota": 1000,
          "headroom": 100,
          "limit": 900,
          "used": 950,
          "remaining": 0,
          "over": 50,
          "recovered": 0,
          "drift": 0,
          "counts": "units",
          "mode": "enforce",
          "since": null,
          "operations": [],
          "window_seconds": 86400,
          "calendar": null,
          "timezone": null,
          "locked_until": null,
          "next_return": {
            "at": "2026-10-25T13:30:00.123456Z",
            "units": 40
          },
          "rate": null
        },
        {
          "name": "calls",
          "kind": "calendar",
          "quota": null,
          "headroom": null,
          "limit": 10,
          "used": 3,
          "remaining": 7,
          "over": 0,
          "recovered": 0,
          "drift": 0,
          "counts": "calls",
          "mode": "enforce",
          "since": "2026-10-25T11:00:00.123456Z",
          "operations": [
            "a.*",
            "!a.b"
          ],
          "window_seconds": 90000,
          "calendar": "day",
          "timezone": "Europe/Berlin",
          "locked_until": null,
          "next_return": {
            "at": "2026-10-25T23:00:00.000000Z",
            "units": 3
          },
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
      "job": "orders",
      "budget": "shop/main",
      "next": "2026-10-25T15:00:00.000000Z",
      "last": {
        "tick": "2026-10-25T09:00:00.000000Z",
        "outcome": "exhausted",
        "reason": "limit",
        "units": 7,
        "runs": []
      },
      "paused": null,
      "active": [
        {
          "tick": "2026-10-25T11:00:00.123456Z",
          "kind": "schedule",
          "since": "2026-10-25T11:00:00.123456Z",
          "host": "in process 12 on web1",
          "silent": false,
          "progress": null
        }
      ]
    },
    {
      "job": "fresh",
      "budget": "shop/main",
      "next": "2026-10-25T16:00:00.000000Z",
      "last": null,
      "paused": {
        "note": "not yet",
        "by": "ann@web1",
        "at": "2026-10-25T11:00:00.123456Z"
      },
      "active": []
    }
  ],
  "daemons": [],
  "alerts": []
}
`
	var b strings.Builder
	must.Do(t, writeJSON(&b, everything(t).JSON()))
	check.Equal(t, b.String(), want, "status")
}

// An overview of nothing is arrays all the same.
func TestStatusJSONEmpty(t *testing.T) {
	var b strings.Builder
	must.Do(t, writeJSON(&b, look.Overview{Store: "sqlite:q.db"}.JSON()))
	for path, want := range map[string]string{"budgets": "[]", "jobs": "[]", "alerts": "[]", "at": "null"} {
		check.Equal(t, must.Get(at([]byte(b.String()), path))(t), want, path, "is, error")
	}
}

func TestSpanText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Minute: "1m", 10 * time.Second: "10s",
		time.Hour + time.Second: "1h0m1s", 20 * time.Minute: "20m", 5 * time.Millisecond: "5ms",
	} {
		check.Equal(t, limit.SpanText(d), want, d, "is shown as")
	}
}
