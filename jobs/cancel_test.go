package jobs

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A pass that a person ends, from any machine, ends as by a drain: the page under way
// is finished, no other is asked for, and the next tick is run as ever, from the first
// region that was not started on.
func TestAPassIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\nschedule = \"0 * * * *\"", upstream: upstream})
		upstream.Handler = slow(4*time.Second, w.sandbox)
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
		records, err := History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 9)
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		p := Pass{"trending", records[0]}
		equal(t, "runs", outcomes(p), []string{"US succeeded", "GB drained cancelled", "DE skipped cancelled"})
		if p.Outcome != Drained || !strings.HasPrefix(p.Runs[1].Error, "cancelled by ") || !strings.HasSuffix(p.Runs[1].Error, ": it is too much") {
			t.Errorf("%+v", p)
		}
		if nothing, err := CancelPasses(t.Context(), w.store, w.list[0], ""); err != nil || len(nothing) != 0 {
			t.Errorf("nothing is under way: %+v, %v", nothing, err)
		}
		after(time.Hour + time.Minute)
		if starts := upstream.starts(); !slices.Contains(starts, "DE 2h0m0s") || !slices.Contains(w.history(), "2h0m0s succeeded") {
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
		equal(t, "runs", outcomes(p), []string{"US drained cancelled", "GB skipped cancelled"})
		if s := w.state(); len(s.Active)+len(s.Waiting)+len(s.Requests) != 0 {
			t.Errorf("state %+v", s)
		}
	})
}

// A request that no daemon has begun is taken back, and whoever waits for it is told.
func TestARequestIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		job := w.list[0]
		if taken, err := TakeBack(t.Context(), w.store, job); err != nil || len(taken) != 0 || w.state().Schedule != "" {
			t.Fatal(taken, err)
		}
		first, err := Trigger(t.Context(), w.store, job, nil, "to try")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Trigger(t.Context(), w.store, job, []string{"US"}, ""); err != nil {
			t.Fatal(err)
		}
		taken, err := TakeBack(t.Context(), w.store, job)
		if err != nil || len(taken) != 2 || taken[0].ID != first.ID {
			t.Fatal(taken, err)
		}
		answer, err := AnswerTo(t.Context(), w.store, job, first)
		if err != nil || answer.Waiting || answer.Record == nil || answer.Record.Outcome != Skipped || answer.Record.Reason != ReasonCancelled || !strings.HasPrefix(answer.Record.Error, "taken back before a daemon began it: cancelled by ") {
			t.Errorf("%+v, %v", answer, err)
		}
		stop := w.daemon(false)
		after(time.Hour)
		stop()
		if history := w.history(); len(history) != 2 {
			t.Errorf("history %q", history)
		}
	})
}
