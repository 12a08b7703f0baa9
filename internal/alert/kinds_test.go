package alert

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

const nightly = costs + `
[job.nightly]
budget = "shop/main"
schedule = "0 3 * * *"
command = ["true"]
operation = "get"
stale_after = "6h"
[job.other]
budget = "shop/main"
schedule = "0 4 * * *"
command = ["true"]
operation = "get"
[alert.team]
url_env = "HOOK"
on = ["exhausted", "forecast", "starved", "failed", "locked", "outage", "lost"]
jobs = ["nightly"]
`

// passed records a pass of a job that ends now.
func (w *world) passed(job string, outcome jobs.Outcome, reason string) {
	w.t.Helper()
	now := time.Now().UTC()
	record := jobs.Record{Tick: jobs.Instant{Time: now.Add(-time.Second)}, Ended: jobs.Instant{Time: now}, Outcome: outcome, Reason: reason, Runs: []jobs.Run{{Outcome: outcome, Error: "what went wrong"}}}
	found := must.Get(w.store.Job(w.t.Context(), job))(w.t)
	document := map[string]any{}
	if found.Text != nil {
		must.Do(w.t, json.Unmarshal(found.Text, &document))
	}
	document["last"] = record
	if outcome == jobs.Succeeded {
		document["last_success"] = now.UnixMicro()
	}
	text := must.Get(json.Marshal(record))(w.t)
	if !must.Get(w.store.SwapJob(w.t.Context(), driver.JobSwap{Job: job, Version: found.Version, Text: must.Get(json.Marshal(document))(w.t), Records: []driver.JobRecord{{At: now.UnixMicro(), ID: now.Format(time.RFC3339Nano), Text: text}}}))(w.t) {
		w.t.Fatal("the record was not written")
	}
}

func TestPasses(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		defer w.daemon()()
		defer w.daemon()()
		step := func(outcome jobs.Outcome, wait time.Duration, want ...string) {
			t.Helper()
			w.passed("nightly", outcome, "limit")
			time.Sleep(wait)
			w.tells(want...)
		}
		w.passed("other", jobs.Failed, "network")
		step(jobs.Succeeded, time.Minute)
		step(jobs.Failed, time.Minute, "failed begin")
		check.Equal(t, w.hook.messages()[0].Job, "nightly", "job")
		check.Contains(t, w.hook.messages()[0].Text, "what went wrong", "text")
		step(jobs.TimedOut, time.Minute, "failed begin")
		step(jobs.Succeeded, time.Minute, "failed begin", "failed end")
		step(jobs.Failed, time.Minute, "failed begin", "failed end") // within the window
		step(jobs.Lost, time.Minute, "failed begin", "failed end", "lost begin")
		step(jobs.Exhausted, time.Hour, "failed begin", "failed end", "lost begin", "exhausted begin")
		step(jobs.Exhausted, 4*time.Hour, "failed begin", "failed end", "lost begin", "exhausted begin")
		time.Sleep(time.Hour) // six hours after the last complete pass
		w.tells("failed begin", "failed end", "lost begin", "exhausted begin", "starved begin")
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(time.Minute)
		got := w.hook.told()[5:]
		slices.Sort(got)
		check.EqualSlices(t, got, []string{"exhausted end", "lost end", "starved end"}, "ends")
	})
}

// A failure and a success between two looks are both told.
func TestPassesBetweenLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		defer w.daemon()()
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(time.Minute + time.Second)
		w.passed("nightly", jobs.Failed, "network")
		time.Sleep(time.Second)
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(time.Minute)
		w.tells("failed begin", "failed end")
	})
}

// A job that fails each day, and is mended each day, gets an alert each day: for a failure within
// the period of the last one when that ends, if the job has not been complete since.
func TestFailuresOfEachDay(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		defer w.daemon()()
		begin, end := "failed begin", "failed end"
		w.passed("nightly", jobs.Failed, "network") // at 0:00
		time.Sleep(time.Hour)
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(23 * time.Hour)
		w.tells(begin, end)
		w.passed("nightly", jobs.Failed, "network") // at 24:00
		time.Sleep(time.Hour)
		w.tells(begin, end, begin)
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(22 * time.Hour)
		w.passed("nightly", jobs.Failed, "network") // at 47:00
		time.Sleep(30 * time.Minute)
		w.tells(begin, end, begin, end)
		time.Sleep(time.Hour)
		w.tells(begin, end, begin, end, begin)
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(22 * time.Hour)
		w.passed("nightly", jobs.Failed, "network") // at 70:30, a day after 48:00 has not passed
		time.Sleep(time.Hour)
		w.tells(begin, end, begin, end, begin, end)
	})
}

// A situation that a daemon sees is not forgotten because another daemon does not know its job,
// and one of a job that nobody knows any more is.
func TestForgetsWhatNobodySees(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		all := w.jobs
		stop := w.daemon()
		time.Sleep(time.Minute)
		w.passed("nightly", jobs.Failed, "network")
		time.Sleep(time.Minute)
		other := newWorld(t, nightly)
		other.store, other.jobs, other.budgets = w.store, all[:0], w.budgets
		stopOther := other.daemon()
		time.Sleep(50 * time.Hour) // its period ended a day ago
		check.EqualSlices(t, append(w.hook.told(), other.hook.told()...), []string{"failed begin"}, "told")
		stop()
		kept := func() int {
			found := must.Get(w.store.Job(t.Context(), documentOf("team")))(t)
			return len(must.Get(read("team", found))(t).Situations)
		}
		time.Sleep(22 * time.Hour)
		before := kept()
		time.Sleep(3 * time.Hour)
		if after := kept(); after >= before {
			t.Errorf("%d situations were kept, %d after a day", before, after)
		}
		stopOther()
	})
}

// The next look sees again what could not be written down, passes between two looks too.
func TestUnwrittenPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		store := &awayStore{JobStore: w.store}
		w.store = store
		defer w.daemon()()
		w.store = store.JobStore
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(time.Minute + time.Second)
		store.readonly.Store(true)
		w.passed("nightly", jobs.Failed, "network")
		time.Sleep(time.Second)
		w.passed("nightly", jobs.Succeeded, "")
		time.Sleep(time.Minute)
		w.tells()
		store.readonly.Store(false)
		time.Sleep(time.Minute)
		w.tells("failed begin", "failed end")
	})
}

// While a budget is reported exhausted, passes that end exhausted are not reported one by
// one, nor later.
func TestExhaustedIsToldOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, strings.Replace(nightly, "24h", "1h", 1))
		defer w.daemon()()
		w.spend(100)
		time.Sleep(time.Minute)
		w.passed("nightly", jobs.Exhausted, "limit")
		time.Sleep(2 * time.Hour)
		w.tells("exhausted begin", "exhausted end")
		time.Sleep(6 * time.Hour)
		check.Equal(t, len(w.hook.messages()), 3, "told, with starved")
		w.passed("nightly", jobs.Exhausted, "limit")
		time.Sleep(time.Minute)
		check.Equal(t, w.hook.told()[3], "exhausted begin", "of the pass alone")
	})
}

func TestLocksForecastsAndOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		w.plan = []Forecast{{Job: "other", Short: 1}}
		away := &awayStore{JobStore: w.store}
		w.store = away
		defer w.daemon()()
		time.Sleep(2 * time.Minute)
		w.tells()
		b := w.budgets["shop/main"]
		must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}, Why: "a person said so"}))(t)
		time.Sleep(time.Minute)
		w.tells("locked begin")
		check.Contains(t, w.hook.messages()[0].Text, "a person said so", "text")
		time.Sleep(time.Hour)
		w.tells("locked begin", "locked end")
		w.mu.Lock()
		w.plan = []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", At: time.Now().Add(time.Hour), Short: 120}}
		w.mu.Unlock()
		time.Sleep(2 * planEvery)
		w.mu.Lock()
		w.plan = nil
		w.mu.Unlock()
		time.Sleep(2 * planEvery)
		w.tells("locked begin", "locked end", "forecast begin", "forecast end")
		check.Contains(t, w.hook.messages()[2].Text, "by limit daily, 120 units short", "text")
		away.out.Store(true)
		time.Sleep(LookEvery)
		away.out.Store(false) // too short to tell
		time.Sleep(time.Minute)
		away.out.Store(true)
		time.Sleep(time.Minute)
		w.tells("locked begin", "locked end", "forecast begin", "forecast end", "outage begin")
		away.out.Store(false)
		time.Sleep(time.Minute)
		w.tells("locked begin", "locked end", "forecast begin", "forecast end", "outage begin", "outage end")
	})
}

// A message whose daemon dies while it is being sent is sent by another, with the same id; one
// that nobody takes is given up after a day, and shown.
func TestTakenOverAndGivenUp(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, team)
		watcher := w.watcher()
		w.spend(100)
		watcher.look(t.Context())
		claimed := must.Get(watcher.claim(t.Context(), "team"))(t)
		check.Equal(t, len(claimed), 2, "claimed") // and it dies
		defer w.daemon()()
		time.Sleep(claimHold - 2*LookEvery)
		w.tells()
		time.Sleep(3 * LookEvery)
		check.Equal(t, len(w.hook.messages()), 2, "sent by another")
		ids := []string{claimed[0].ID, claimed[1].ID}
		for _, m := range w.hook.messages() {
			if !slices.Contains(ids, m.ID) {
				t.Errorf("%s has another id", m.ID)
			}
		}
		w.hook.answers(func(int, *http.Request) (int, http.Header, error) { return 410, nil, nil })
		time.Sleep(24*time.Hour + time.Minute)
		health := must.Get(Look(t.Context(), w.store, w.cfg.Alerts))(t)
		check.Equal(t, health[0].Failing, 2, "failing")
		check.Contains(t, health[0].Text(), "2 messages could not be delivered since", "said")
		check.Contains(t, health[0].Text(), "status 410", "said")
		time.Sleep(26 * time.Hour)
		health = must.Get(Look(t.Context(), w.store, w.cfg.Alerts))(t)
		check.Equal(t, health[0].GivenUp, 2, "given up")
		check.Equal(t, health[0].Waiting, 0, "waiting")
		check.Contains(t, Findings(t.Context(), w.store, w.cfg.Alerts)[0].Says, "given up", "doctor says")
		check.Equal(t, w.count(GivenUp), 2, "counted")
		if w.count(Failed) > 2*45 {
			t.Errorf("%d tries in a day", w.count(Failed))
		}
		w.noSecret("team")
	})
}

// A daemon that is stopped tells what is due within its moments; what hangs is left to others.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, team)
		stop := w.daemon()
		synctest.Wait()
		w.spend(100)
		began := time.Now()
		stop()
		check.Equal(t, len(w.hook.messages()), 2, "told")
		check.Equal(t, time.Since(began), 0, "took")

		w = newWorld(t, team)
		w.hook.answers(func(_ int, r *http.Request) (int, http.Header, error) {
			<-r.Context().Done()
			return 0, nil, errors.New("Post " + secretAddress)
		})
		stop = w.daemon()
		synctest.Wait()
		w.spend(100)
		began = time.Now()
		stop()
		if took := time.Since(began); took > runEnds {
			t.Errorf("a stop took %s", took)
		}
		w.hook.answers(nil)
		w.watcher().Once(t.Context())
		check.Equal(t, len(w.hook.messages()), 2, "told by the next")
		w.noSecret("team")
	})
}

// A look that hangs when the daemon is stopped is cut with the rest.
func TestStopCutsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, team)
		w.store = hangingStore{w.store}
		stop := w.daemon()
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > runEnds {
			t.Errorf("a stop took %s", took)
		}
	})
}

// The end of something is sent after its begin, however often the begin fails; what is about
// something else does not wait.
func TestEndsWaitForBegins(t *testing.T) {
	r := &record{}
	for i, key := range []string{"a", "a", "b"} {
		r.add(pending{Message: Message{ID: string(rune('1' + i))}, Key: key}, 0)
	}
	ids := func(list []pending) (ids string) {
		for _, p := range list {
			ids += p.ID
		}
		return ids
	}
	check.Equal(t, ids(r.claim("me", 1, 9)), "13", "at first")
	check.Equal(t, ids(r.claim("you", 2, 9)), "", "claimed")
	r.conclude("1", "me", "status 500", 3, time.Second)
	r.conclude("3", "me", "", 3, 0)
	check.Equal(t, ids(r.claim("me", 4, 9)), "", "before the wait is over")
	check.Equal(t, ids(r.claim("me", time.Second.Microseconds()+3, 9)), "1", "after the wait")
	r.conclude("1", "me", "", 5, 0)
	check.Equal(t, ids(r.claim("me", 6, 9)), "2", "at last")
}

// A pass of some regions, that a person asked for, does not end an alert.
func TestAPartOfTheRegionsEndsNothing(t *testing.T) {
	j := &jobs.Job{Name: "nightly", Budget: "shop/main", Regions: []string{"US", "GB"}}
	for n, ends := range []bool{1: false, 2: true} {
		pass := jobs.Record{Outcome: jobs.Succeeded, Runs: []jobs.Run{{Region: "US"}, {Region: "GB"}}[:n]}
		for _, f := range ofPass(j, pass, func(int64) int64 { return 0 }, 0) {
			check.Equal(t, f.off, ends, f.Kind, "after regions", n)
		}
	}
}
