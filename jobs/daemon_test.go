package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
)

// daemon runs the world's jobs until stop, which drains it.
func (w *world) daemon(startNow bool) (stop func()) {
	drain, done := make(chan struct{}), make(chan error, 1)
	r := w.runner()
	go func() { done <- r.Run(w.t.Context(), drain, startNow) }()
	return func() {
		w.t.Helper()
		close(drain)
		check.NoError(w.t, <-done, "a drained daemon returned")
	}
}

// midnight is when fake time begins.
var midnight = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// starts are the instants at which regions were first asked for, since
// midnight.
func (r *recorded) starts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, q := range r.requests {
		if q.query.Get("pageToken") == "" {
			list = append(list, fmt.Sprintf("%s %s", q.region, q.at.Sub(midnight)))
		}
	}
	return list
}

// Offsets belong to places, and are exact, whatever region a pass begins with.
func TestRegionsStartAtTheirOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 20, job: `
regions = ["US", "GB", "DE", "FR"]
schedule = "0 */12 * * *"
stagger = "8m"`})
		stop := w.daemon(false)
		after(12*time.Hour + time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"US 12h0m0s", "GB 12h2m0s", "DE 12h4m0s", "FR 12h6m0s"}, "the first pass")
		upstream.forget()
		after(12 * time.Hour) // 4 of 20 units are left
		check.EqualSlices(t, upstream.starts(), []string{"US 24h0m0s"}, "the second pass")
		upstream.forget()
		after(12 * time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"GB 36h0m0s", "DE 36h2m0s", "FR 36h4m0s", "US 36h6m0s"}, "the third pass")
		stop()
		check.Equal(t, w.list[0].Offset(3), 6*time.Minute, "Offset(3)")
		w.logged("msg=job", "job=trending", "regions=4 stagger=8m0s one_every=2m0s next=2000-01-01T12:00:00Z")
		w.logged("msg=\"run ended\"", "region=GB", "outcome=exhausted", "reason=limit", "run=trending/20000102T000000Z/GB")
	})
}

// All regions of a pass may run at once in the daemon, and no more than
// parallel where the job says so.
func TestTheDaemonRunsRegionsTogether(t *testing.T) {
	for _, test := range []struct {
		parallel string
		want     time.Duration
	}{{"", 3*time.Hour + 4*time.Second}, {"parallel = 2", 3*time.Hour + 16*time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: test.parallel})
			w.options.Transport = direct{slow(time.Second, w.sandbox)}
			w.follow(false, 3*time.Hour+time.Minute)
			line := ""
			for l := range strings.Lines(w.log.String()) {
				if strings.Contains(l, `msg="pass ended"`) {
					line = l
				}
			}
			if at := "time=" + midnight.Add(test.want).Format("2006-01-02T15:04:05.000Z"); !strings.HasPrefix(line, at) {
				t.Errorf("%q: the pass ended as %q, want %s", test.parallel, line, at)
			}
		})
	}
}

// A pass that outlives its schedule keeps the next one from starting, which
// is said; and it keeps no other job from its own.
func TestASlowJobIsSkippedAndBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream,
			job: "regions = [\"US\"]\nschedule = \"0 * * * *\"\ntimeout = \"12h\"",
			more: `
[job.other]
budget = "youtube/key1"
schedule = "0 * * * *"
[job.other.fetch]
operation = "videos.list"
url = "http://upstream.test/youtube/v3/videos?regionCode=other&key=any"
output = "data/other/{tick}.ndjson"`})
		upstream.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("regionCode") == "US" {
				slow(90*time.Minute, w.sandbox).ServeHTTP(rw, r)
				return
			}
			w.sandbox.ServeHTTP(rw, r)
		})
		stop := w.daemon(false)
		after(3*time.Hour + 30*time.Minute)
		starts := upstream.starts()
		slices.Sort(starts)
		check.EqualSlices(t, starts, []string{"US 1h0m0s", "other 1h0m0s", "other 2h0m0s", "other 3h0m0s"}, "starts")
		for _, tick := range []string{"2000-01-01T02:00:00Z", "2000-01-01T03:00:00Z"} {
			w.logged("pass not started", "job=trending", "tick="+tick, "outcome=skipped", "reason=overlap")
		}
		stop()
	})
}

func TestOverlapIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.claimed(w.runner(), midnight.Add(-time.Hour), "web1/4711/x")
		p := w.once()
		if p.Outcome != Skipped || p.Reason != ReasonOverlap || len(p.Runs) != 0 || w.used() != 0 {
			t.Errorf("pass %+v", p)
		}
		if want := "another pass of the job is under way, in process 4711 on web1, for tick 1999-12-31T23:00:00Z"; p.Error != want {
			t.Errorf("error %q, want %q", p.Error, want)
		}
		w.logged("pass not started", "job=trending", "outcome=skipped", "reason=overlap", "in process 4711 on web1")
		after(time.Minute)
		w.succeeds()
		check.EqualSlices(t, w.history(), []string{"-1h0m0s lost crashed", "1m30s succeeded"}, "history")
	})
}

// One pass a tick: of two daemons one is first, and the other quiet.
func TestATickIsRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(24*time.Hour + time.Minute)
		stopFirst()
		stopSecond()
		check.Equal(t, w.used(), 8*4, "two daemons spent … units, want one's 32")
		check.Equal(t, strings.Count(w.log.String(), `msg="pass not started"`), 0, "times the daemon that was second says so")
		check.Equal(t, len(w.history()), 8, "records", w.history())
	})
}

// skewed is a wall clock that can be stepped while timers go on.
type skewed struct{ by atomic.Int64 }

func (s *skewed) now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

// After a suspend what is overdue is noticed at the next look at the clock; with
// catch_up the last tick is run, and those before it are said to be missed.
func TestASuspendedMachineCatchesUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 * * * *\"\ncatch_up = \"last\""})
		var clock skewed
		w.options.Now, w.options.Poll = clock.now, DefaultPoll
		w.options.State = memstore.New(func() int64 { return clock.now().UnixMicro() })
		stop := w.daemon(false)
		after(30*time.Minute + 31*time.Second)
		clock.by.Store(int64(5 * time.Hour)) // it is 05:30:31
		after(29 * time.Minute)
		stop()
		check.EqualSlices(t, upstream.starts(), []string{"US 30m32s"}, "starts")
		w.logged("ticks missed", "job=trending", "outcome=missed", "reason=catch_up", "first=2000-01-01T01:00:00Z", "until=2000-01-01T04:00:00Z", "ticks=4")
		w.logged("run ended", "run=trending/20000101T050000Z/US")
	})
}

// A clock set back does not strand the next tick in the future.
func TestAClockSetBackIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 12 * * *\""})
		var clock skewed
		clock.by.Store(int64(20 * time.Hour))
		w.options.Now = clock.now
		stop := w.daemon(false) // it is 20:00: the next tick is tomorrow's
		after(10 * time.Minute)
		clock.by.Store(0) // it is 00:10
		after(12 * time.Hour)
		stop()
		check.EqualSlices(t, upstream.starts(), []string{"US 12h0m0s"}, "starts")
		w.logged("the clock went backwards")
	})
}

func TestTheDaemonMayStartWithAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, job: "regions = [\"US\"]\nschedule = \"0 * * * *\""})
		w.follow(true, time.Hour+time.Minute)
		check.EqualSlices(t, upstream.starts(), []string{"US 0s", "US 1h0m0s"}, "starts")
		w.logged("run=trending/20000101T000001Z/US") // midnight itself is the schedule's
	})
}

func TestADrainedDaemonFinishesThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "stagger = \"8m\""})
		w.options.Transport = direct{slow(4*time.Second, w.sandbox)}
		stop := w.daemon(false)
		after(3*time.Hour + time.Minute + 5*time.Second)
		began := time.Now()
		stop()
		check.Equal(t, time.Since(began), 3*time.Second, "stopping took, want the rest of the page, 3s")
		w.nextIs("GB")
	})
}

// arrives is how long a request that is given up may still arrive, before it is settled.
const arrives = time.Second

func TestASecondStopEndsTheDaemonAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = direct{slow(time.Hour, w.sandbox)}
		signal := errors.New("second signal")
		ctx, halt := context.WithCancelCause(t.Context())
		drain := make(chan struct{})
		time.AfterFunc(3*time.Hour+time.Second, func() { close(drain) })
		time.AfterFunc(3*time.Hour+2*time.Second, func() { halt(signal) })
		check.Is(t, w.runner().Run(ctx, drain, false), signal, "Run")
		check.Equal(t, time.Since(midnight), 3*time.Hour+2*time.Second+arrives, "it ended at")
	})
}
