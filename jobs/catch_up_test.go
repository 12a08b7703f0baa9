package jobs

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What waits to be caught up has its turn one pass at a time, over all jobs of a
// budget and over daemons.
func TestCatchUpIsNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &together{wait: 3 * time.Minute}
		caught := "schedule = \"0 * * * *\"\ncatch_up = \"all\""
		w := twoJobs(t, setup{upstream: upstream, job: "regions = [\"US\"]\n" + caught}, caught)
		stop := w.daemon(false)
		after(30 * time.Minute)
		stop()
		after(4 * time.Hour) // at 04:30 both daemons find four ticks of each job
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(29 * time.Minute)
		stopFirst()
		stopSecond()
		if n := len(w.history()); n != 4 || upstream.most.Load() != 1 || upstream.asked.Load() != 8 {
			t.Errorf("%d records, %d requests, %d at once: %s", n, upstream.asked.Load(), upstream.most.Load(), w.history())
		}
	})
}

// together counts how many requests are under way at once.
type together struct {
	wait             time.Duration
	now, most, asked atomic.Int64
}

func (u *together) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.asked.Add(1)
	now := u.now.Add(1)
	defer u.now.Add(-1)
	for most := u.most.Load(); now > most && !u.most.CompareAndSwap(most, now); most = u.most.Load() {
	}
	select {
	case <-time.After(u.wait):
		_, _ = w.Write([]byte("{}"))
	case <-r.Context().Done():
	}
}

// What a caught-up pass costs the store does not grow with the jobs that wait.
func TestCatchUpCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 60
		caught := "regions = [\"US\"]\nschedule = \"0 * * * *\"\ncatch_up = \"last\""
		more := ""
		for i := range jobs - 1 {
			more += fmt.Sprintf("\n[job.more%d]\nbudget = \"youtube/key1\"\n%s\n[job.more%d.fetch]\noperation = \"videos.list\"\nurl = \"https://upstream.test/\"\noutput = \"data/{job}/{region}/{tick}.ndjson\"\n", i, caught, i)
		}
		upstream := &together{wait: 200 * time.Millisecond}
		w := newWorld(t, setup{upstream: upstream, job: caught, more: more})
		counted := &changeable{State: w.store}
		w.options.State = counted
		stop := w.daemon(false)
		after(30 * time.Minute)
		stop()
		after(4 * time.Hour)
		stop = w.daemon(false)
		before := counted.calls.Load()
		after(29 * time.Second)
		if n := counted.calls.Load() - before; upstream.asked.Load() != jobs || upstream.most.Load() != 1 || n > jobs*20 {
			t.Errorf("%d passes, %d at once, %d calls", upstream.asked.Load(), upstream.most.Load(), n)
		}
		stop()
	})
}
