package jobs

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/checkpoint"
)

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
		if !errors.Is(err, ErrUnderWay) || !strings.Contains(err.Error(), "quotactl cancel trending ends it") {
			t.Errorf("while a pass is under way: %v", err)
		}
		if len(w.state().Active) != 1 {
			t.Fatalf("state %+v", w.state())
		}
		after(time.Hour / 2)
		stop()
		if len(w.history()) != 1 {
			t.Fatalf("history %q", w.history())
		}
		if err := Forget(t.Context(), w.store, "trending"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"trending", runSlots("trending")} {
			if found, err := w.store.Job(t.Context(), name); err != nil || found.Text != nil {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
		if value, err := w.store.JobValue(t.Context(), "trending", checkpoint.Key("US")); value != nil || err != nil || len(w.history()) != 0 {
			t.Errorf("checkpoint %q, %v; history %q", value, err, w.history())
		}
		if found, err := w.store.Job(t.Context(), newsName); err != nil || found.Version != 0 {
			t.Errorf("%+v, %v", found, err)
		}
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
		if err := Forget(t.Context(), w.store, "trending"); err != nil {
			t.Fatal(err)
		}
		silent.Store(false)
		if p := <-ended; p.Outcome != Lost {
			t.Errorf("%+v", p)
		}
		if found, err := w.store.Job(t.Context(), "trending"); err != nil || found.Text != nil {
			t.Errorf("%+v, %v", found, err)
		}
	})
}
