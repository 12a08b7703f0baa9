package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/jobs"
)

// keep adds records to a job's history.
func keep(t *testing.T, state jobs.State, job, document string, records ...jobs.Record) {
	t.Helper()
	swap := driver.JobSwap{Job: job}
	if document != "" {
		swap.Text = []byte(document)
	}
	for i, record := range records {
		text := compact(t, record)
		swap.Records = append(swap.Records, driver.JobRecord{At: record.Tick.UnixMicro(), ID: fmt.Sprint(i), Text: text})
	}
	if swapped, err := state.SwapJob(t.Context(), swap); err != nil || !swapped {
		t.Fatal(swapped, err)
	}
}

// pastOf is a history with all that there may be to say of a run.
func pastOf(t *testing.T) (state jobs.State, list []*jobs.Job) {
	t.Helper()
	store := memstore.New(noon.UnixMicro)
	until := ago(5 * time.Hour)
	keep(t, store, "pull", fmt.Sprintf(`{"active":[{"holder":"web1/7/x","tick":%d,"kind":"schedule","fence":1,"since":%d,"until":%d,"progress":%s}]}`,
		ago(time.Minute).UnixMicro(), ago(30*time.Second).UnixMicro(), ago(-time.Minute).UnixMicro(), compact(t, jobs.Record{Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Succeeded, Started: ago(30 * time.Second), Ended: ago(28 * time.Second), Units: 4, Pages: 4},
			{Region: "DE", Started: ago(20 * time.Second), Units: 1, Pages: 1},
			{Region: "FR"},
		}})),
		jobs.Record{Tick: ago(time.Hour), Kind: jobs.Scheduled, Outcome: jobs.Failed, Host: "in process 7 on web1", Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Failed, Reason: "status 503", Started: ago(time.Hour), Ended: ago(time.Hour - 8*time.Minute), Units: 2, Error: "GET upstream.test: 503 \x1b[31mService Unavailable", Log: []string{"one", "two\x07"}},
			{Region: "DE", Outcome: jobs.Exhausted, Reason: jobs.ReasonLimit, Started: ago(time.Hour), Ended: ago(time.Hour - 1500*time.Millisecond), Units: 3, Pages: 3},
			{Region: "FR", Outcome: jobs.Skipped, Reason: jobs.ReasonExhausted},
		}},
		jobs.Record{Tick: ago(12 * time.Hour), Kind: jobs.Scheduled, Outcome: jobs.Drained, Reason: jobs.ReasonStop, Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Drained, Reason: jobs.ReasonStop, Started: ago(12 * time.Hour), Ended: ago(12*time.Hour - time.Second), Units: 2, Pages: 2},
		}},
		jobs.Record{Tick: ago(2 * time.Hour), Kind: jobs.Triggered, Outcome: jobs.Succeeded, Request: "ABC", Note: "requested by ann@web1: a try", Runs: []jobs.Run{
			{Region: "US", Outcome: jobs.Succeeded, Started: ago(2 * time.Hour), Ended: ago(2*time.Hour - 300*time.Millisecond), Units: 4, Pages: 4},
		}},
		jobs.Record{Tick: ago(9 * time.Hour), Until: &until, Ticks: 12, Kind: jobs.Scheduled, Outcome: jobs.Missed, Reason: jobs.ReasonDown, Runs: []jobs.Run{}},
	)
	keep(t, store, "push", `{"active":[{"holder":"web2/8/x","tick":1,"kind":"manual","fence":1,"since":1,"until":1}]}`,
		jobs.Record{Tick: ago(90 * time.Minute), Kind: jobs.CaughtUp, Outcome: jobs.Lost, Reason: jobs.ReasonCrashed, Error: "the daemon that ran it stopped renewing its claim", Runs: []jobs.Run{
			{Outcome: jobs.Lost, Reason: jobs.ReasonCrashed, Started: ago(80 * time.Minute)},
		}},
		jobs.Record{Tick: ago(3 * time.Hour), Kind: jobs.Scheduled, Outcome: jobs.Skipped, Reason: jobs.ReasonPaused, Error: "paused by ann@web1: until Friday", Runs: []jobs.Run{}},
	)
	return store, []*jobs.Job{{Name: "pull"}, {Name: "push"}}
}

// shownRuns is what runs shows at noon.
func shownRuns(t *testing.T, f runsFlags, list []*jobs.Job, state jobs.State) []answer.Run {
	t.Helper()
	a := &app{now: func() time.Time { return noon }}
	if f.n == 0 {
		f.n = defaultNext
	}
	must.Do(t, f.check(func(string) bool { return false }))
	reader := look.Reader{Store: state.(open.Backend), Now: a.now}
	runs, _, err := reader.Runs(t.Context(), list, f.asked(a.now()))
	must.Do(t, err)
	return runs
}

func TestRunsTable(t *testing.T) {
	state, list := pastOf(t)
	for _, test := range []struct {
		name  string
		flags runsFlags
		list  []*jobs.Job
		want  string
	}{
		{"one job, with logs", runsFlags{log: true}, list[:1], `
TICK                  REGION  OUTCOME              UNITS  PAGES   TOOK
2026-11-20 11:59:00Z  US      succeeded                4      4     2s
2026-11-20 11:59:00Z  DE      running                  1      1    20s
2026-11-20 11:59:00Z  FR      waiting                  -      -      -
2026-11-20 11:00:00Z  US      failed (status 503)      2      0     8m
  GET upstream.test: 503 ?[31mService Unavailable
  | one
  | two?
2026-11-20 11:00:00Z  DE      exhausted (limit)        3      3   1.5s
2026-11-20 11:00:00Z  FR      skipped (exhausted)      -      -      -
2026-11-20 10:00:00Z  US      succeeded                4      4  300ms
  requested by ann@web1: a try
2026-11-20 03:00:00Z  -       missed (down)            -      -      -
  12 ticks, until 2026-11-20 07:00:00Z
2026-11-20 00:00:00Z  US      drained (stop)           2      2     1s
`},
		{"several", runsFlags{n: 8, outcomes: []string{"running", "succeeded", "lost", "skipped"}}, list, `
TICK                  JOB   REGION  OUTCOME              UNITS       TOOK
2026-11-20 11:59:00Z  pull  US      succeeded                4         2s
2026-11-20 11:59:00Z  pull  DE      running                  1        20s
1970-01-01 00:00:01Z  push  -       running (silent)         0  20777d12h
  a manual pass
2026-11-20 11:00:00Z  pull  FR      skipped (exhausted)      -          -
2026-11-20 10:30:00Z  push  -       lost (crashed)           0          -
  caught up: nobody took its tick in time
  the daemon that ran it stopped renewing its claim
2026-11-20 10:00:00Z  pull  US      succeeded                4      300ms
  requested by ann@web1: a try
2026-11-20 09:00:00Z  push  -       skipped (paused)         -          -
  paused by ann@web1: until Friday
`},
		{"none", runsFlags{regions: []string{"JP"}}, list, "\nthere are no such runs\n"},
	} {
		var b strings.Builder
		must.Do(t, writeText(&b, jobview.Runs(screen.Pipe(), noon, shownRuns(t, test.flags, test.list, state), len(test.list) == 1)))
		check.Equal(t, b.String(), test.want[1:], test.name)
		for line := range strings.SplitSeq(b.String(), "\n") {
			if utf8.RuneCountInString(line) > table.Width {
				t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
			}
		}
	}
}

// The flags choose runs, and no more than that many.
// What a lost run spent is shown where the ledger alone knows that it had begun.
func TestRunsShowWhatALostRunSpent(t *testing.T) {
	store := memstore.New(noon.UnixMicro)
	keep(t, store, "pull", "", jobs.Record{Tick: ago(time.Hour), Kind: jobs.Scheduled, Outcome: jobs.Lost, Reason: jobs.ReasonCrashed, Runs: []jobs.Run{
		{Region: "JP", Outcome: jobs.Lost, Reason: jobs.ReasonCrashed, Units: 3, Calls: 3},
		{Region: "KR", Outcome: jobs.Skipped, Reason: jobs.ReasonCrashed},
	}})
	var b strings.Builder
	list := []*jobs.Job{{Name: "pull"}}
	must.Do(t, writeText(&b, jobview.Runs(screen.Pipe(), noon, shownRuns(t, runsFlags{}, list, store), true)))
	const want = `TICK                  REGION  OUTCOME            UNITS  PAGES  TOOK
2026-11-20 11:00:00Z  JP      lost (crashed)         3      -     -
2026-11-20 11:00:00Z  KR      skipped (crashed)      -      -     -
`
	check.Equal(t, b.String(), want, "runs")
}

func TestRunsChosen(t *testing.T) {
	state, list := pastOf(t)
	for _, test := range []struct {
		flags runsFlags
		want  string
	}{
		{runsFlags{n: 2}, "pull 11:59 US succeeded; pull 11:59 DE running"},
		{runsFlags{n: 5}, "pull 11:59 US succeeded; pull 11:59 DE running; pull 11:59 FR waiting; push 00:00  running; pull 11:00 US failed"},
		{runsFlags{errors: true}, "pull 11:00 US failed; pull 11:00 DE exhausted; pull 11:00 FR skipped; push 10:30  lost; pull 03:00  missed; pull 00:00 US drained"},
		{runsFlags{outcomes: []string{"waiting", "exhausted"}}, "pull 11:59 FR waiting; pull 11:00 DE exhausted"},
		{runsFlags{regions: []string{"DE", "FR"}}, "pull 11:59 DE running; pull 11:59 FR waiting; pull 11:00 DE exhausted; pull 11:00 FR skipped"},
		{runsFlags{since: time.Hour}, "pull 11:59 US succeeded; pull 11:59 DE running; pull 11:59 FR waiting; pull 11:00 US failed; pull 11:00 DE exhausted; pull 11:00 FR skipped"},
		{runsFlags{since: time.Hour - time.Microsecond, outcomes: []string{"failed"}}, ""},
	} {
		var got []string
		for _, r := range shownRuns(t, test.flags, list, state) {
			got = append(got, fmt.Sprintf("%s %s %s %s", r.Job, r.Tick.Format("15:04"), r.Region, r.Outcome))
			if r.Log != nil {
				t.Errorf("%+v: a log that nobody asked for", r)
			}
		}
		check.Equal(t, strings.Join(got, "; "), test.want, test.flags)
	}
}

func TestRunsJSON(t *testing.T) {
	state, list := pastOf(t)
	found := shownRuns(t, runsFlags{outcomes: []string{"failed", "missed", "lost"}, log: true}, list, state)
	const want = `{
  "runs": [
    {
      "job": "pull",
      "tick": "2026-11-20T11:00:00.000000Z",
      "kind": "schedule",
      "host": "in process 7 on web1",
      "region": "US",
      "outcome": "failed",
      "reason": "status 503",
      "started": "2026-11-20T11:00:00.000000Z",
      "ended": "2026-11-20T11:08:00.000000Z",
      "calls": 0,
      "pages": 0,
      "output": "",
      "error": "GET upstream.test: 503 \u001b[31mService Unavailable",
      "log": [
        "one",
        "two\u0007"
      ],
      "units": 2,
      "took_seconds": 480
    },
    {
      "job": "push",
      "tick": "2026-11-20T10:30:00.000000Z",
      "kind": "catch_up",
      "region": "",
      "outcome": "lost",
      "reason": "crashed",
      "started": "2026-11-20T10:40:00.000000Z",
      "calls": 0,
      "pages": 0,
      "output": "",
      "error": "the daemon that ran it stopped renewing its claim",
      "units": 0,
      "took_seconds": null
    },
    {
      "job": "pull",
      "tick": "2026-11-20T03:00:00.000000Z",
      "until": "2026-11-20T07:00:00.000000Z",
      "ticks": 12,
      "kind": "schedule",
      "region": "",
      "outcome": "missed",
      "reason": "down",
      "calls": 0,
      "pages": 0,
      "output": "",
      "error": "",
      "units": 0,
      "took_seconds": null
    }
  ]
}
`
	var b strings.Builder
	must.Do(t, writeJSON(&b, answer.Runs{Runs: found}))
	check.Equal(t, b.String(), want, "runs")
}

// A job that is not configured any more is known by what is kept of it.
func TestRunsOfARemovedJob(t *testing.T) {
	state, _ := pastOf(t)
	configured := []*jobs.Job{{Name: "pull"}, {Name: "other"}}
	list, err := jobsOrKept(t.Context(), state, configured, []string{"push", "pull"})
	if err != nil || len(list) != 2 || list[0].Name != "push" || list[1] != configured[0] {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := jobsOrKept(t.Context(), state, configured, nil); err != nil || !slices.Equal(list, configured) {
		t.Errorf("%+v, %v", list, err)
	}
	for name, want := range map[string]string{
		"pul": `there is no job "pul"; the jobs are: pull, other; did you mean "pull"?`,
		"@x":  `there is no job "@x"; the jobs are: pull, other`,
	} {
		if _, err := jobsOrKept(t.Context(), state, configured, []string{name}); err == nil || err.Error() != want || exitCode(err) != exitUsage {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	found := shownRuns(t, runsFlags{n: 1, outcomes: []string{"skipped"}}, []*jobs.Job{{Name: "push"}}, state)
	if len(found) != 1 || found[0].Job != "push" {
		t.Errorf("%+v", found)
	}
}

// compact is a value as JSON.
func compact(t *testing.T, value any) []byte {
	t.Helper()
	return must.Get(json.Marshal(value))(t)
}
