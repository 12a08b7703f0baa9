package jobs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

// deferring is a job that has units for five regions of each day, and defers the others.
const deferring = `
regions = ["US", "GB", "DE"]
schedule = "0 6 * * 6"
parallel = 1
on_exhausted = "defer"`

// spend has somebody else spend units.
func (w *world) spend(units int64) {
	w.t.Helper()
	must.Get(w.options.Budgets["youtube/key1"].Charge(w.t.Context(), budget.Call{Operation: "videos.list", Units: &units}))(w.t)
}

// records are the newest records of the only job, the oldest first.
func (w *world) records() []Record {
	w.t.Helper()
	list := must.Get(History(w.t.Context(), w.options.State, w.list[0].Name, time.Time{}, time.Time{}, 100))(w.t)
	for i, n := 0, len(list); i < n/2; i++ {
		list[i], list[n-1-i] = list[n-1-i], list[i]
	}
	return list
}

// deferredText is what waits for its units: "6h0m0s/2 until 24h0m0s: GB DE".
func (w *world) deferredText() []string {
	w.t.Helper()
	var list []string
	view := must.Get(Look(w.t.Context(), w.options.State, w.list[:1]))(w.t)[0]
	for _, d := range view.Deferred {
		list = append(list, fmt.Sprintf("%s/%d until %s: %s", d.Tick.Sub(midnight), d.Part, d.At.Sub(midnight), strings.Join(d.Regions, " ")))
	}
	return list
}

// The regions that a pass left go on at the very instant at which the units return, and the
// pass has one record.
func TestADeferredPassGoesOnWhenItsUnitsReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 13, job: deferring})
		after(90 * time.Minute)
		w.spend(9) // they return at 25h30m
		stop, second := w.daemon(false), w.daemon(false)
		after(5 * time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"US 6h0m0s"}, "starts")
		check.EqualSlices(t, w.history(), []string{"6h0m0s exhausted deferred"}, "history")
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/2 until 25h30m0s: GB DE"}, "deferred")
		check.EqualSlices(t, outcomes(Pass{Record: w.records()[0]}), []string{"US succeeded", "GB exhausted deferred", "DE skipped deferred"}, "runs")
		w.nextIs("GB")
		w.logged("level=INFO", "pass deferred until its units return", "job=trending", "budget=youtube/key1", "part=2", "regions=\"[GB DE]\"", "until=2000-01-02T01:30:00.000000Z")
		upstream.forget()
		after(24 * time.Hour)
		check.EqualSlices(t, upstream.starts(), []string{"GB 25h30m0s", "DE 25h30m0s"}, "starts of the second part")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		record := w.records()[0]
		check.EqualSlices(t, outcomes(Pass{Record: record}), []string{"US succeeded", "GB succeeded", "DE succeeded"}, "runs")
		check.Equal(t, record.Parts, 2, "parts")
		check.Equal(t, record.Units, 12, "units")
		check.Equal(t, record.Kind, Scheduled, "kind")
		check.Equal(t, record.Ended.Sub(midnight), 25*time.Hour+30*time.Minute, "ended")
		w.nextIs("")
		if s := w.state(); len(s.Deferred) > 0 || s.LastSuccess == 0 || len(s.First) > 0 {
			t.Errorf("state %+v", s)
		}
		stop()
		second()
	})
}

// The rest is recorded and dropped at the job's next tick, which has it first, and
// when the job is paused, when it is taken back, when a reload removes it, and past
// max_late.
func TestADeferredPassIsDropped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		job  string
		act  func(w *world, r *Runner)
		last time.Duration // until it is dropped
		want string
		why  string
	}{
		"next tick": {"schedule = \"0 6,18 * * *\"", nil, 12 * time.Hour, "6h0m0s exhausted next_tick", "the job's next tick came before the units"},
		"late":      {"max_late = \"90m\"", nil, 2 * time.Hour, "6h0m0s exhausted late", "max_late"},
		"paused": {"", func(w *world, _ *Runner) {
			_, _, _, err := SetPause(w.t.Context(), w.store, w.list[0], "enough")
			check.NoError(w.t, err)
		}, 0, "6h0m0s exhausted paused", "enough"},
		"taken back": {"", func(w *world, _ *Runner) {
			asked, dropped, err := TakeBack(w.t.Context(), w.store, w.list[0])
			if err != nil || len(asked) > 0 || len(dropped) != 1 || dropped[0].Part != 2 || strings.Join(dropped[0].Regions, " ") != "GB DE" {
				w.t.Errorf("%v, %+v, %v", asked, dropped, err)
			}
		}, 0, "6h0m0s exhausted cancelled", "cancelled by "},
		"removed": {"", func(w *world, r *Runner) {
			check.NoError(w.t, r.Reload(nil, nil))
		}, time.Second, "6h0m0s exhausted removed", "no longer has the job"},
		"stop": {"", func(w *world, r *Runner) {
			j := *w.list[0]
			j.OnExhausted = StopExhausted
			check.NoError(w.t, r.Reload([]*Job{&j}, w.options.Budgets))
		}, time.Minute, "6h0m0s exhausted removed", "on_exhausted"},
		"no such regions": {"", func(w *world, r *Runner) {
			j := *w.list[0]
			j.Regions = []string{"US", "FR"}
			check.NoError(w.t, r.Reload([]*Job{&j}, w.options.Budgets))
		}, time.Minute, "6h0m0s exhausted removed", "regions"},
	} {
		inBubble(t, name, func(t *testing.T) {
			job := deferring
			if strings.Contains(test.job, "schedule") {
				job = strings.Replace(job, `schedule = "0 6 * * 6"`, test.job, 1)
			} else {
				job += "\n" + test.job
			}
			upstream := &recorded{}
			w := newWorld(t, setup{upstream: upstream, limit: 13, job: job})
			w.spend(9) // they return at midnight
			r := w.runner()
			drain, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- r.Run(t.Context(), drain, false) }()
			after(7 * time.Hour)
			check.EqualSlices(t, w.history(), []string{"6h0m0s exhausted deferred"}, "history")
			if test.act != nil {
				test.act(w, r)
			}
			after(test.last)
			synctest.Wait()
			record := w.records()[0]
			check.Equal(t, w.history()[0], test.want, "history")
			check.EqualSlices(t, outcomes(Pass{Record: record})[1:], []string{"GB exhausted " + record.Reason, "DE skipped " + record.Reason}, "runs")
			check.Contains(t, record.Runs[2].Error, test.why, "why")
			check.Equal(t, record.Parts, 0, "parts")
			if name != "paused" && name != "taken back" { // which other processes do
				w.logged("level=WARN", "a deferred pass does not go on", "reason="+record.Reason)
			}
			left := 0
			if name == "next tick" { // which leaves them too
				left = 1
				check.EqualSlices(t, outcomes(Pass{Record: w.records()[1]})[:2], []string{"GB exhausted deferred", "DE skipped deferred"}, "runs")
			}
			check.Equal(t, len(w.state().Deferred), left, "deferred")
			before := upstream.count()
			if test.job == "" || strings.Contains(test.job, "max_late") {
				after(20 * time.Hour)
				check.Equal(t, upstream.count(), before, "requests")
				check.EqualSlices(t, w.state().First, []string{"GB", "DE"}, "first")
			}
			close(drain)
			check.NoError(t, <-done)
		})
	}
}

// The next tick begins with the regions that were left, wherever they stand, and goes on
// with the others.
func TestTheNextTickBeginsWithWhatWasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 100, job: `
regions = ["US", "GB", "DE", "FR"]
schedule = "0 6,18 * * *"
parallel = 1
on_exhausted = "defer"`})
		stop := w.daemon(false)
		after(time.Minute)
		must.Do(t, w.runner().docs.change(t.Context(), w.list[0], func(s *state, _ clocks) (edit, error) {
			s.First, s.NextRegion = []string{"GB", "FR", "gone"}, "FR"
			return edit{}, nil
		}))
		after(7 * time.Hour)
		check.EqualSlices(t, upstream.firsts(), []string{"GB", "FR", "US", "DE"}, "order")
		check.EqualSlices(t, w.state().First, []string{"gone"}, "first")
		w.nextIs("")
		stop()
	})
}

// An interrupted run goes on with its checkpoint, in a file of its own until it is
// complete; without checkpoints it does not.
func TestADeferredRunGoesOnWithItsCheckpoint(t *testing.T) {
	t.Parallel()
	for _, checkpoint := range []string{"checkpoint = \"48h\"", ""} {
		inBubble(t, checkpoint, func(t *testing.T) {
			upstream := &recorded{}
			w := newWorld(t, setup{upstream: upstream, limit: 13, job: deferring + "\n" + checkpoint})
			w.spend(7) // US and two pages of GB
			stop := w.daemon(false)
			after(7 * time.Hour)
			before := w.records()[0]
			after(23*time.Hour + time.Minute) // 7 units return at midnight, the others at 6 and later
			stop()
			record := w.records()[0]
			if checkpoint == "" {
				check.EqualSlices(t, outcomes(Pass{Record: before}), []string{"US succeeded", "GB exhausted limit", "DE skipped deferred"}, "runs")
				check.EqualSlices(t, outcomes(Pass{Record: record}), []string{"US succeeded", "GB exhausted limit", "DE succeeded"}, "runs")
				check.Equal(t, record.Outcome, Exhausted)
				return
			}
			check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
			if run := record.Runs[1]; run.Units != 4 || run.Pages != 4 || !run.Resumed || run.Calls != 4 {
				t.Errorf("run %+v", run)
			}
			check.EqualSlices(t, w.files(), []string{"trending/DE/20000101T060000Z.ndjson", "trending/GB/20000101T060000Z.ndjson", "trending/US/20000101T060000Z.ndjson"}, "files")
			check.Equal(t, strings.Count(readFile(t, w.dir+"/data/trending/GB/20000101T060000Z.ndjson"), "\n"), 4, "pages")
			check.Equal(t, upstream.count(), 12, "requests")
		})
	}
}

// A pass may be cut again: it goes on in as many parts as it takes, in one record.
func TestADeferredPassIsDeferredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream, limit: 12, job: strings.Replace(deferring, "parallel = 1", "parallel = 1\nstagger = \"30m\"\nmax_late = \"100h\"", 1)})
		for range 3 { // 4 return at midnight, at 1 and at 2
			w.spend(4)
			after(time.Hour)
		}
		stop := w.daemon(false)
		after(21*time.Hour + 30*time.Minute)
		check.EqualSlices(t, upstream.starts(), []string{"US 24h0m0s"}, "starts")
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/3 until 25h0m0s: GB DE"}, "deferred")
		after(time.Hour)
		check.EqualSlices(t, w.deferredText(), []string{"6h0m0s/4 until 26h0m0s: DE"}, "deferred")
		after(time.Hour)
		stop()
		check.EqualSlices(t, upstream.starts(), []string{"US 24h0m0s", "GB 25h0m0s", "DE 26h0m0s"}, "starts")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, w.records()[0].Parts, 4, "parts")
	})
}

// A pass alone never defers; and what a person cancels is not deferred.
func TestWhatIsNotDeferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 5, job: deferring})
		p := w.once()
		check.EqualSlices(t, outcomes(p), []string{"US succeeded", "GB exhausted limit", "DE skipped exhausted"}, "runs")
		check.Equal(t, len(w.state().Deferred), 0, "deferred")
	})
}

// A look comes at the instant, at once if the clock was set back, and, if a hold has ended
// early that the pass waits for, as soon as the upstream lets it.
func TestWhenToLookForADeferredPass(t *testing.T) {
	t.Parallel()
	d := deferred{At: 200, Set: 100, NotBefore: 150, HoldsEnded: 3}
	for now, want := range map[int64]int64{99: 99, 100: 200, 199: 200, 201: 200} {
		check.Equal(t, d.due(clocks{now: now}, 4), want, "look at", now)
	}
	d.Held = true
	for ended, want := range map[int64]int64{3: 200, 4: 150, 0: 150} {
		check.Equal(t, d.due(clocks{now: 120}, ended), want, "look after so many ends:", ended)
	}
}

// Where no refusal names an instant, a look does; where that finds the units, the pauses
// grow, as long as no instant is known.
func TestWhenAPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 4, job: deferring})
		p := &pass{runner: w.runner(), job: w.list[0], budget: w.options.Budgets["youtube/key1"], hard: t.Context()}
		returns := func() (d deferred) {
			d.Regions = []string{"US"}
			p.unitsReturn(&d, Record{}, Record{})
			return d
		}
		for before, want := range map[int]time.Duration{0: time.Minute, 1: 2 * time.Minute, 5: 32 * time.Minute, 6: time.Hour, 1000: time.Hour} {
			p.held.claim.Pauses = before
			if d := returns(); d.At != 0 || d.wait != want || d.Pauses != before+1 {
				t.Errorf("after %d pauses: %+v; want %s", before, d, want)
			}
		}
		d := deferred{Regions: []string{"US"}}
		p.unitsReturn(&d, Record{Runs: []Run{{Outcome: Succeeded}, {Outcome: Exhausted}}}, Record{})
		if d.At != 0 || d.wait != 0 || d.Pauses != 0 {
			t.Errorf("another run of the pass had the units: %+v", d)
		}
		w.spend(4)
		if d := returns(); d.At != midnight.Add(24*time.Hour).UnixMicro() || d.wait != 0 || d.Pauses != 0 {
			t.Errorf("units are back at midnight: %+v", d)
		}
		p.noteRefusal(&ending{outcome: Exhausted, wait: 25 * time.Hour})
		after(time.Hour)
		p.noteRefusal(&ending{outcome: Exhausted, wait: 25 * time.Hour})
		if d := returns(); d.At != midnight.Add(24*time.Hour).UnixMicro() || d.wait != 24*time.Hour {
			t.Errorf("the upstream asks to wait: %+v", d)
		}
		p.noteRefusal(&ending{outcome: Exhausted, err: &budget.RefusedError{RetryAt: midnight.Add(3 * time.Hour)}})
		p.noteRefusal(&ending{outcome: Exhausted, err: &budget.RefusedError{RetryAt: midnight.Add(2 * time.Hour)}})
		p.noteRefusal(&ending{outcome: Exhausted, err: &budget.RefusedError{}})
		if d := returns(); d.At != midnight.Add(2*time.Hour).UnixMicro() || d.Held {
			t.Errorf("several refusals: %+v", d)
		}
		p.noteRefusal(&ending{outcome: Exhausted, err: &budget.RefusedError{Held: 2}})
		if d := returns(); !d.Held || d.HoldsEnded != -1 {
			t.Errorf("refused beside what others hold: %+v", d)
		}
		p.held.claim.Part, p.held.claim.Pauses = 2, 0
		if d := returns(); d.patient || d.At != midnight.Add(24*time.Hour).UnixMicro() {
			t.Errorf("a part that spent nothing, since others took the units: %+v", d)
		}
		after(24 * time.Hour)
		if d := returns(); !d.patient || d.At != midnight.Add(2*time.Hour).UnixMicro() || d.Pauses != 0 {
			t.Errorf("a part that spent nothing is looked at early: %+v", d)
		}
	})
}

// The charges of a run by operation are not known where a part was lost that had been charged
// more than it reported.
func TestWhatThePartsOfARunSpent(t *testing.T) {
	t.Parallel()
	started := InstantOf(1)
	spent := func(units int64) []needs.Amount {
		return []needs.Amount{{Operation: "videos.list", Units: units, Calls: 1}}
	}
	first := Run{Started: started, Units: 2, Calls: 1, Spent: spent(2)}
	for name, c := range map[string]struct {
		later Run
		units int64 // by operation; 0: not known
	}{
		"went on":                     {Run{Started: started, Units: 3, Calls: 1, Spent: spent(3)}, 5},
		"did not go on":               {Run{}, 2},
		"lost, charged more":          {Run{Started: started, Units: 3, Calls: 1}, 0},
		"lost, not known to have run": {Run{Units: 3, Calls: 1}, 0},
	} {
		whole, sum := first.then(c.later), int64(0)
		for _, a := range whole.Spent {
			sum += a.Units
		}
		check.Equal(t, whole.Units, 2+c.later.Units, name, "units")
		check.Equal(t, sum, c.units, name, "by operation")
	}
}

// A region that does not fit for some seconds starts then, also while another region of the
// pass runs for minutes, whether or not passes are deferred.
func TestAShortRefusalBesideALongRun(t *testing.T) {
	t.Parallel()
	for _, exhausted := range []string{"stop", "defer"} {
		inBubble(t, exhausted, func(t *testing.T) {
			h := newHerd(t, setup{limit: 100, job: "schedule = \"@yearly\""},
				"schedule = \"0 6 * * 6\"\nregions = [\"US\", \"GB\", \"DE\"]\nstagger = \"30s\"\ntimeout = \"30m\"", "one")
			if exhausted == "stop" {
				h.list[1].OnExhausted, h.list[1].StartWait = StopExhausted, h.list[1].MaxWait
			}
			h.takes = func() time.Duration { return 20 * time.Minute }
			h.begin()
			after(6*time.Hour + 5*time.Second)
			must.Get(h.options.Budgets["youtube/key1"].Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: 10 * time.Second}, Why: "throttled"}))(t)
			after(2 * time.Hour)
			begun := h.begun()
			must.Equal(t, len(begun), 3, "starts")
			for i, line := range begun {
				_, text, _ := strings.Cut(line, " ")
				want := 6*time.Hour + []time.Duration{0, 15 * time.Second, 20 * time.Second}[i]
				if late := must.Get(time.ParseDuration(text))(t) - want; late > 2*time.Second {
					t.Errorf("%s: %s late", line, late)
				}
			}
			h.stopAll()
		})
	}
}

// A deferred pass is not dropped for its own tick by a daemon whose clock is behind.
func TestADeferredPassIsNotDroppedForItsOwnTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 10, job: deferring})
		j, tick := w.list[0], midnight.Add(6*time.Hour)
		s := &state{}
		at := func(d time.Duration) clocks {
			now := tick.Add(d)
			return clocks{wall: now, store: now.UnixMicro(), now: now.UnixMicro()}
		}
		d := &deferred{Tick: tick.UnixMicro(), Part: 2, Kind: Scheduled, Regions: []string{"US"}, At: tick.Add(time.Hour).UnixMicro()}
		s.Recent = []int64{tick.UnixMicro()}
		got := j.postpone(s, at(-5*time.Second), d, Record{Tick: Instant{tick}, Outcome: Exhausted, Reason: ReasonDeferred})
		check.Equal(t, got.Reason, ReasonDeferred, "reason when deferred")
		reason, why := j.drops(s, at(time.Millisecond), &s.Deferred[0])
		check.Equal(t, reason, "", "dropped: "+why)
	})
}
