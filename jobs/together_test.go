package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// twoJobs is a world with another job beside trending, "more", of one region.
func twoJobs(t *testing.T, s setup, more string) *world {
	t.Helper()
	s.more += fmt.Sprintf(`
[job.more]
budget = "youtube/key1"
regions = ["other"]
%s
[job.more.fetch]
operation = "videos.list"
url = "https://upstream.test/youtube/v3/videos?regionCode={region}"
output = "data/{job}/{tick}.ndjson"
`, more)
	return newWorld(t, s)
}

// What a person asks for goes through the state: any daemon hears of it within the
// time between two of its looks.
func TestWhatIsAskedThroughTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream})
		w.options.Poll = DefaultPoll
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(10*time.Minute + time.Second)
		asked := must.Get(Trigger(t.Context(), w.store, w.list[0], []string{"DE", "GB"}, "to try"))(t)
		after(DefaultPoll)
		regions := upstream.firsts()
		slices.Sort(regions)
		check.EqualSlices(t, regions, []string{"DE", "GB"}, "regions")
		w.nextIs("")
		check.EqualSlices(t, w.history(), []string{"10m2s succeeded"}, "history")
		last, err := readRecord(w.state().Last)
		if err != nil || last.Request != asked.ID || last.Kind != Triggered || !strings.HasSuffix(last.Note, ": to try") {
			t.Errorf("record %+v, %v", last, err)
		}
		if _, before, _, err := SetPause(t.Context(), w.store, w.list[0], "they moved"); err != nil || before != nil {
			t.Error(before, err)
		}
		if _, before, _, err := SetPause(t.Context(), w.store, w.list[0], "still"); err != nil || before.Note != "they moved" {
			t.Error(before, err)
		}
		after(3 * time.Hour)
		check.Equal(t, must.Get(EndPause(t.Context(), w.store, w.list[0]))(t).Note, "still")
		if before, err := EndPause(t.Context(), w.store, w.list[0]); err != nil || before != nil {
			t.Error(before, err)
		}
		after(3 * time.Hour)
		stopFirst()
		stopSecond()
		check.EqualSlices(t, w.history(), []string{"10m2s succeeded", "3h0m0s skipped paused", "6h0m0s succeeded"}, "history")
		if _, err := Trigger(t.Context(), w.store, w.list[0], []string{"XX"}, ""); err == nil || !strings.Contains(err.Error(), `no region "XX"`) {
			t.Errorf("a region that there is not: %v", err)
		}
	})
}

// A daemon goes on with other jobs: a pass under way ends as it began, and a new
// schedule's ticks count from the reload.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := twoJobs(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 * * * *\""}, "schedule = \"30 * * * *\"")
		upstream.Handler = slow(30*time.Second, w.sandbox)
		r := w.runner()
		drain, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- r.Run(t.Context(), drain, false) }()
		after(time.Hour + time.Minute) // the pass of 01:00 is under way
		more := *w.list[1]
		quarters := parsed(t, "*/15 * * * *", "UTC")
		more.Schedule = quarters
		must.Do(t, r.Reload([]*Job{&more}, w.options.Budgets))
		if err := r.Reload([]*Job{&more}, map[string]*budget.Budget{}); err == nil || !strings.Contains(err.Error(), "youtube/key1 is not open") {
			t.Errorf("a budget that is not open: %v", err)
		}
		after(time.Hour + 30*time.Minute)
		close(drain)
		check.NoError(t, <-done)
		check.EqualSlices(t, w.history(), []string{"1h0m0s succeeded"}, "the job that is gone")
		starts := upstream.starts()
		slices.Sort(starts)
		check.EqualSlices(t, starts, []string{"US 1h0m0s", "other 1h15m0s", "other 1h30m0s", "other 1h45m0s", "other 2h0m0s", "other 2h15m0s", "other 2h30m0s", "other 30m0s"}, "starts")
	})
}

// A claim whose answer is lost is the daemon's all the same: its tick is run,
// once, and nothing is lost.
func TestAnswersOfTheStateAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		deaf := &deaf{State: w.store}
		w.options.State = deaf
		w.follow(false, 12*time.Hour+time.Minute)
		w.options.State = w.store
		check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded", "6h0m0s succeeded", "9h0m0s succeeded", "12h0m0s succeeded"}, "history")
		if deaf.lost.Load() < 4 || w.used() != 4*4 {
			t.Errorf("%d answers lost, %d units used", deaf.lost.Load(), w.used())
		}
	})
}

// deaf is a state whose every other answer to a swap is lost.
type deaf struct {
	State
	swaps, lost atomic.Int64
}

func (d *deaf) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	swapped, err := d.State.SwapJob(ctx, swap)
	if err == nil && swapped && d.swaps.Add(1)%2 == 1 {
		d.lost.Add(1)
		return false, errFails
	}
	return swapped, err
}

// A store that was away from all daemons gives those with passes under way the time
// to renew their claims.
func TestAnOutageLosesNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"4h\"\non_store_error = \"open\""})
		w.options.Transport = direct{slow(20*time.Minute, w.sandbox)}
		var away atomic.Bool
		w.options.State = failing{w.store, away.Load}
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(3*time.Hour + 5*time.Minute)
		away.Store(true)
		after(10 * time.Minute)
		away.Store(false)
		after(2 * time.Hour)
		stopFirst()
		stopSecond()
		check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded"}, "history")
	})
}

// A pass that ends while the store is away is recorded when that is back, and is not recorded
// as lost meanwhile; a daemon that stops does not wait for that.
func TestAPassThatEndsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"4h\""})
		w.options.Transport = direct{slow(2*time.Minute, w.sandbox)} // 4 pages
		var away atomic.Bool
		w.options.State = failing{w.store, away.Load}
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(3*time.Hour + 5*time.Minute)
		away.Store(true)
		after(20 * time.Minute) // it ends at 03:08
		away.Store(false)
		after(5 * time.Minute)
		check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded"}, "history")
		after(2*time.Hour + 35*time.Minute)
		away.Store(true) // at 06:05
		after(5 * time.Minute)
		began := time.Now()
		stopFirst()
		stopSecond()
		if took := time.Since(began); took > 2*finalWriteTimeout {
			t.Errorf("stopping took %s", took)
		}
	})
}

// A request for a region that the daemon's configuration has not says so.
func TestARequestForARegionThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		w.ask("", "DE", "GB")
		w.list[0].Regions = []string{"US", "DE"}
		stop := w.daemon(false)
		after(time.Minute)
		must.Get(Trigger(t.Context(), w.store, &Job{Name: "trending", Regions: []string{"FR"}, History: time.Hour}, []string{"FR"}, ""))(t)
		after(time.Minute)
		stop()
		records := must.Get(History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 9))(t)
		must.Equal(t, len(records), 2)
		check.EqualSlices(t, outcomes(Pass{"trending", records[1]}), []string{"DE succeeded", "GB failed region"}, "runs")
		check.EqualSlices(t, outcomes(Pass{"trending", records[0]}), []string{"FR failed region"}, "runs")
		if records[0].Outcome != Failed || records[1].Outcome != Failed {
			t.Errorf("outcomes %s and %s", records[0].Outcome, records[1].Outcome)
		}
	})
}

// A pass is fenced off from the budget that it spends, wherever its job stands by now, and
// a budget that is gone by a reload is there for those that spend it still.
func TestAPassIsFencedOffFromItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion, more: "[upstream.youtube.credential.key2]\nsecret_env = \"YOUTUBE_API_KEY\""})
		r := w.runner()
		var dead claim
		_, _, _, err := r.takeStep(t.Context(), w.list[0], claimant{holder: "x/1/first", hold: r.docs.hold(), since: time.Now()})
		must.Do(t, err)
		after(3 * time.Hour)
		done, _, _, err := r.takeStep(t.Context(), w.list[0], claimant{holder: "x/1/dead", hold: r.docs.hold(), since: time.Now()})
		if err != nil || done.claim == nil {
			t.Fatal(done, err)
		}
		dead = *done.claim
		moved := *w.list[0]
		moved.Budget = "youtube/key2"
		must.Do(t, r.Reload([]*Job{&moved}, map[string]*budget.Budget{"youtube/key2": w.options.Budgets["youtube/key2"]}))
		reap, err := r.fence(t.Context(), &moved, []claim{dead})
		if found, dead := reap["x/1/dead"]; err != nil || !dead || found.unfenced != nil || found.spent == nil {
			t.Fatal(reap, err)
		}
		call := budget.Call{Operation: "videos.list", Labels: budget.Labels{Job: "trending"}, Fence: dead.Fence}
		check.Is(t, check.Err(w.options.Budgets["youtube/key1"].Charge(t.Context(), call)), budget.ErrFenced, "the zombie's charge")
		if r.budget("youtube/key1") == nil {
			t.Error("the budget is gone from under the passes that spend it")
		}
	})
}

// One that crashed, though, is noticed, and its tick is recorded as lost.
func TestACrashIsNoticed(t *testing.T) { crashIsNoticed(t, 0) }

// A daemon notices it, too, that asks for news less often than passes renew their claims.
func TestACrashIsNoticedByWhoAsksSeldom(t *testing.T) { crashIsNoticed(t, time.Minute) }

func crashIsNoticed(t *testing.T, poll time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "schedule = \"0 */3 * * *\"\nstagger = \"16m\"\ntimeout = \"4h\""})
		w.options.Transport = direct{slow(time.Minute, w.sandbox)}
		var dead atomic.Bool
		sound := w.options.State
		w.options.State = failing{w.store, dead.Load}
		ctx, crash := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- w.runner().Run(ctx, nil, false) }()
		after(3*time.Hour + 5*time.Minute + 30*time.Second)
		dead.Store(true)
		crash()
		t.Log("crashed:", <-gone)
		w.options.State, w.options.Poll = sound, poll
		stop := w.daemon(false)
		after(3*time.Minute + poll)
		check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed"}, "history")
		last := must.Get(readRecord(w.state().Last))(t)
		check.EqualSlices(t, outcomes(Pass{"trending", last}), []string{
			"US succeeded", "GB lost crashed", "DE lost crashed", "FR skipped crashed", "IN skipped crashed", "BR skipped crashed", "AU skipped crashed", "CA skipped crashed",
		}, "runs")
		w.nextIs("GB")
		stop()
	})
}

// A pass that was declared dead while its daemon lives spends nothing any more: its
// next call is refused, and what became of it is recorded once.
func TestAZombieSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 */3 * * *\"\ntimeout = \"4h\""})
		upstream.Handler = slow(5*time.Minute, w.sandbox)
		var deaf atomic.Bool // to what daemons agree on, not to the ledger
		sound := w.options.State
		w.options.State = failing{w.store, deaf.Load}
		stopZombie := w.daemon(false)
		after(3*time.Hour + time.Minute)
		deaf.Store(true)
		w.options.State = sound
		stop := w.daemon(false)
		after(30 * time.Minute)
		w.logged("run ended", "outcome=lost", "reason=fenced")
		deaf.Store(false)
		after(30 * time.Minute)
		stopZombie()
		stop()
		if n := upstream.count(); n != 1 || w.used() != 1 {
			t.Errorf("%d pages were asked for, %d units used: want the one that was under way", n, w.used())
		}
		check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed"}, "history")
	})
}
