package jobs

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
)

// A pass that a person ends, from any machine, ends as by a drain: the page under way
// is finished, no other is asked for, and the next tick is run as ever, from the first
// region that was not started on.
func TestAPassIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\nschedule = \"0 * * * *\"", upstream: upstream})
		upstream.Handler = slow(4*time.Second, w.sandbox)
		w.options.Poll = DefaultPoll
		stop := w.daemon(false)
		defer stop()
		after(time.Hour + 21*time.Second) // amid the second page of GB
		ended, err := CancelPasses(t.Context(), w.store, w.list[0], "  it is  too much\n")
		if err != nil || len(ended) != 1 || ended[0].Cancelled == nil || ended[0].Cancelled.Note != "it is too much" || ended[0].Silent {
			t.Fatalf("%+v, %v", ended, err)
		}
		again, err := CancelPasses(t.Context(), w.store, w.list[0], "another word")
		if err != nil || len(again) != 1 || *again[0].Cancelled != *ended[0].Cancelled {
			t.Errorf("once more: %+v, %v", again, err)
		}
		asked := upstream.count()
		after(4 * time.Second)
		if s := w.state(); len(s.Active) != 0 || s.NextRegion != "DE" || upstream.count() != asked || w.used() != int64(asked) {
			t.Errorf("state %+v, %d requests after %d, %d units", s, upstream.count(), asked, w.used())
		}
		records := must.Get(History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 9))(t)
		must.Equal(t, len(records), 1)
		p := Pass{"trending", records[0]}
		check.EqualSlices(t, outcomes(p), []string{"US succeeded", "GB drained cancelled", "DE skipped cancelled"}, "runs")
		if p.Outcome != Drained || !strings.HasPrefix(p.Runs[1].Error, "cancelled by ") || !strings.HasSuffix(p.Runs[1].Error, ": it is too much") {
			t.Errorf("%+v", p)
		}
		if nothing, err := CancelPasses(t.Context(), w.store, w.list[0], ""); err != nil || len(nothing) != 0 {
			t.Errorf("nothing is under way: %+v, %v", nothing, err)
		}
		after(time.Hour + time.Minute)
		if starts := upstream.starts(); !slices.Contains(starts, "GB 2h0m0s") || !slices.Contains(w.history(), "2h0m0s succeeded") {
			t.Errorf("starts %q, history %q", starts, w.history())
		}
	})
}

// A pass of a process that hears nothing of what is asked ends with its heartbeat, also
// when it had started nothing; and it is not given back.
func TestAPassThatHearsNothingIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]\nstagger = \"20m\"", upstream: slow(time.Hour, nil)})
		ended := make(chan Pass, 1)
		go func() { ended <- w.runner().Once(t.Context(), nil)[0] }()
		after(20 * time.Second)
		if list, err := CancelPasses(t.Context(), w.store, w.list[0], ""); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		began := time.Now()
		p := <-ended
		if took := time.Since(began); took > DefaultHeartbeat+w.list[0].Grace {
			t.Errorf("it ended after %s", took)
		}
		check.EqualSlices(t, outcomes(p), []string{"US drained cancelled", "GB skipped cancelled"}, "runs")
		if s := w.state(); len(s.Active)+len(s.Waiting)+len(s.Requests) != 0 {
			t.Errorf("state %+v", s)
		}
	})
}

// A request that no daemon has begun is taken back, and its waiters learn so.
func TestARequestIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		job := w.list[0]
		if taken, _, err := TakeBack(t.Context(), w.store, job); err != nil || len(taken) != 0 || w.state().Schedule != "" {
			t.Fatal(taken, err)
		}
		first := must.Get(Trigger(t.Context(), w.store, job, nil, "to try"))(t)
		must.Get(Trigger(t.Context(), w.store, job, []string{"US"}, ""))(t)
		taken, _, err := TakeBack(t.Context(), w.store, job)
		if err != nil || len(taken) != 2 || taken[0].ID != first.ID {
			t.Fatal(taken, err)
		}
		answer, err := AnswerTo(t.Context(), w.store, job, first)
		if err != nil || answer.Waiting || answer.Record == nil || answer.Record.Outcome != Skipped || answer.Record.Reason != ReasonCancelled || !strings.HasPrefix(answer.Record.Error, "taken back before a daemon began it: cancelled by ") {
			t.Errorf("%+v, %v", answer, err)
		}
		w.follow(false, time.Hour)
		if history := w.history(); len(history) != 2 {
			t.Errorf("history %q", history)
		}
	})
}

// Nothing is left of a job that is forgotten, and nothing is forgotten of others; while
// a pass of it is under way it is not.
func TestAJobIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\"]\nschedule = \"0 * * * *\"\ncheckpoint = \"1h\""})
		w.list[0].Overlap, w.list[0].Parallel = Allow, 1
		w.options.Transport = direct{slow(10*time.Second, w.sandbox)}
		stop := w.daemon(false)
		after(time.Hour + 15*time.Second)
		err := Forget(t.Context(), w.store, "trending")
		if !errors.Is(err, ErrUnderWay) || !strings.Contains(err.Error(), "end it with quotactl cancel trending") {
			t.Errorf("while a pass is under way: %v", err)
		}
		must.Equal(t, len(w.state().Active), 1, "state", w.state())
		after(time.Hour / 2)
		stop()
		must.Equal(t, len(w.history()), 1, "history", w.history())
		must.Do(t, Forget(t.Context(), w.store, "trending"))
		for _, name := range []string{"trending", runSlots("trending")} {
			if found, err := w.store.Job(t.Context(), name); err != nil || found.Text != nil {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
		if value, err := w.store.JobValue(t.Context(), "trending", checkpoint.Key("US")); value != nil || err != nil || len(w.history()) != 0 {
			t.Errorf("checkpoint %q, %v; history %q", value, err, w.history())
		}
		check.Equal(t, must.Get(w.store.Job(t.Context(), newsName))(t).Version, 0)
		stop = w.daemon(false) // configured again it begins anew
		after(time.Hour)
		stop()
		if history := w.history(); len(history) != 1 || strings.Contains(history[0], "missed") {
			t.Errorf("history %q", history)
		}
	})
}

// A pass whose daemon is silent keeps no job from being forgotten; should it come back,
// it ends, and leaves no record.
func TestAJobWithASilentPassIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion, upstream: slow(time.Hour, nil)})
		var silent atomic.Bool
		w.options.State = failing{w.store, silent.Load}
		ended := make(chan Pass, 1)
		go func() { ended <- w.runner().Once(t.Context(), nil)[0] }()
		after(time.Second)
		silent.Store(true)
		after(time.Minute + time.Second)
		must.Do(t, Forget(t.Context(), w.store, "trending"))
		silent.Store(false)
		if p := <-ended; p.Outcome != Lost {
			t.Errorf("%+v", p)
		}
		if found, err := w.store.Job(t.Context(), "trending"); err != nil || found.Text != nil {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// A run that a stop cuts is drained where it had spent, whoever spent it, and skipped where
// it had not.
func TestWhatAStopCutIsDrainedWhereItHadSpent(t *testing.T) {
	for name, test := range map[string]struct {
		cut  *ending
		run  Run
		want string
	}{
		"had spent":              {&ending{outcome: Skipped, reason: ReasonDrained}, Run{Units: 3, Calls: 3}, "drained stop"},
		"had called for nothing": {&ending{outcome: Skipped, reason: ReasonDrained}, Run{Calls: 1}, "drained stop"},
		"at once":                {&ending{outcome: Skipped, reason: ReasonInterrupted}, Run{Units: 3}, "drained interrupted"},
		"had not spent":          {&ending{outcome: Skipped, reason: ReasonDrained}, Run{}, "skipped drained"},
		"its timeout":            {&ending{outcome: TimedOut, reason: ReasonTimeout}, Run{Units: 3}, "timed_out timeout"},
	} {
		end := test.cut.of(test.run)
		check.Equal(t, string(end.outcome)+" "+end.reason, test.want, name)
	}
	var none *ending
	if none.of(Run{Units: 1}) != nil {
		t.Error("a run that is complete has an ending")
	}
}

// A pass is drained where one of its runs is; a failure tells more than that, and a
// region that was not started less.
func TestAPassOfDrainedRuns(t *testing.T) {
	for want, runs := range map[Outcome][]Run{
		Drained: {{Outcome: Succeeded}, {Outcome: Exhausted}, {Outcome: Drained}, {Outcome: Skipped}},
		Failed:  {{Outcome: Drained}, {Outcome: Failed}},
	} {
		r := Record{Runs: runs, Started: Instant{time.Now()}}
		if r.conclude(); r.Outcome != want {
			t.Errorf("%s, want %s", r.Outcome, want)
		}
	}
}
