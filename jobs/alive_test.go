package jobs

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Which daemons live is known of those that follow jobs, until they stop, and for a
// minute of those that died.
func TestWhichDaemonsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		live := func(want ...time.Duration) {
			t.Helper()
			list, err := Daemons(t.Context(), w.store)
			if err != nil || list == nil {
				t.Fatal(list, err)
			}
			var got []time.Duration
			for _, d := range list {
				got = append(got, d.Since.Sub(midnight))
				if !strings.HasPrefix(d.Host, "in process ") {
					t.Errorf("%+v", d)
				}
			}
			equal(t, "daemons since", got, want)
		}
		live()
		stopFirst := w.daemon(false)
		after(time.Hour)
		stopSecond := w.daemon(false)
		after(time.Second)
		live(0, time.Hour)
		stopFirst()
		live(time.Hour)
		var away atomic.Bool
		away.Store(true)
		w.options.State = failing{w.store, away.Load}
		stopThird := w.daemon(false)
		after(time.Millisecond)
		away.Store(false)
		after(time.Minute)
		live(time.Hour, time.Hour+31*time.Second) // the first word was not heard
		stopSecond()
		away.Store(true) // it dies: nothing is heard of it any more
		after(time.Minute + time.Second)
		live()
		stopThird()

		list := w.list
		w.list = nil // it decides charges, and follows no jobs
		w.options.State = w.store
		stop := w.daemon(false)
		after(time.Minute)
		live()
		stop()
		w.list = list
	})
}
