package jobs

import (
	"testing"
	"testing/synctest"
	"time"
)

// A pass of which nothing was started when its daemon is told to stop is another's.
func TestAPassIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "schedule = \"0 * * * *\""})
		w.list[0].BudgetParallel = 1
		busy := w.runner()
		if taken, err := busy.takeSlot(t.Context(), runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
			t.Fatal(taken, err)
		}
		free := busy.keepSlot(t.Context(), w.options.Log, runSlots("youtube/key1"), "busy")
		stop := w.daemon(false)
		after(time.Hour + 10*time.Second)
		stop()
		w.logged("pass given back", "job=trending", "tick=2000-01-01T01:00:00Z")
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 1 {
			t.Errorf("state %+v", s)
		}
		free()
		stop = w.daemon(false)
		after(10 * time.Second)
		stop()
		equal(t, "history", w.history(), []string{"1h0m0s succeeded"})
	})
}

// What was asked for is asked for still when its pass is given back; a manual pass is
// nobody else's.
func TestWhoseAPassIsThatWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		w.list[0].BudgetParallel = 1
		busy := w.runner()
		if taken, err := busy.takeSlot(t.Context(), runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
			t.Fatal(taken, err)
		}
		defer busy.keepSlot(t.Context(), w.options.Log, runSlots("youtube/key1"), "busy")()
		asked, err := Trigger(t.Context(), w.store, w.list[0], []string{"GB"}, "to try")
		if err != nil {
			t.Fatal(err)
		}
		stop := w.daemon(false)
		after(10 * time.Second)
		if s := w.state(); len(s.Active) != 1 || len(s.Requests) != 0 {
			t.Errorf("state %+v", s)
		}
		stop()
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 || len(s.Requests) != 1 || s.Requests[0].ID != asked.ID || len(w.history()) != 0 {
			t.Errorf("state %+v, history %s", s, w.history())
		}
		drain := make(chan struct{})
		time.AfterFunc(10*time.Second, func() { close(drain) })
		if p := w.runner().Once(t.Context(), drain)[0]; p.Outcome != Skipped || p.Reason != ReasonDrained {
			t.Errorf("pass %+v", p)
		}
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 || len(w.history()) != 1 {
			t.Errorf("state %+v, history %s", s, w.history())
		}
	})
}

// A pass of which anything was started is over when its daemon is told to stop: its
// tick is not run again.
func TestAPassThatWasStartedIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = direct{slow(10*time.Second, w.sandbox)}
		stop := w.daemon(false)
		after(3*time.Hour + 5*time.Second)
		stop()
		if s := w.state(); len(s.Active) != 0 || len(s.Waiting) != 0 {
			t.Errorf("state %+v", s)
		}
		equal(t, "history", w.history(), []string{"3h0m0s drained stop"})
	})
}
