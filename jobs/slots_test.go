package jobs

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// No more runs of a budget go at once than its upstream's parallel says, whatever
// daemon and job they are of.
func TestRunsOfABudgetAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &together{wait: 10 * time.Minute}
		w := twoJobs(t, setup{upstream: upstream, job: "schedule = \"0 * * * *\"\ntimeout = \"2h\""}, "schedule = \"0 * * * *\"\ntimeout = \"2h\"")
		for _, j := range w.list {
			j.BudgetParallel = 3
		}
		stopFirst, stopSecond := w.daemon(false), w.daemon(false)
		after(60*time.Minute + 45*time.Minute)
		stopFirst()
		stopSecond()
		check.Equal(t, upstream.most.Load(), 3)
		check.Equal(t, upstream.asked.Load(), 9)
	})
}

// A slot that could not be renewed in an outage is not another's at once when that is
// over.
func TestASlotOutlivesAnOutage(t *testing.T) {
	for _, readable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { outlives(t, readable) })
	}
}

func outlives(t *testing.T, readable bool) {
	w := newWorld(t, setup{job: oneRegion})
	var away atomic.Bool
	w.options.State = failing{w.store, away.Load}
	if readable {
		w.options.State = unchanging{w.store, away.Load}
	}
	first, second := w.runner(), w.runner()
	name := runSlots("youtube/key1")
	take := func(r *Runner, holder string) bool {
		taken, err := r.docs.takeSlot(t.Context(), name, holder, 1)
		if err != nil && !away.Load() {
			t.Error(err)
		}
		return taken
	}
	if !take(first, "first") {
		t.Fatal("it is not free")
	}
	free := first.docs.keepSlot(t.Context(), w.options.Log, name, "first")
	defer free()
	takes := 0
	for i := range 20 * 60 { // an outage of 10 minutes
		away.Store(i > 300 && i < 900)
		if take(second, "second") {
			takes++
		}
		after(time.Second)
	}
	check.Equal(t, takes, 0, "it was given to another … times")
}

// A slot is kept while its run waits for another: a run needs one of its job's and
// one of its budget's.
func TestASlotIsKeptWhileAnotherIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\noverlap = \"allow\"\nparallel = 1"})
		w.list[0].BudgetParallel = 1
		r := w.runner()
		if taken, err := r.docs.takeSlot(t.Context(), runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
			t.Fatal(taken, err)
		}
		free := r.docs.keepSlot(t.Context(), w.options.Log, runSlots("youtube/key1"), "busy")
		passed := make(chan Pass)
		go func() { passed <- r.Once(t.Context(), nil)[0] }()
		synctest.Wait()
		for asked := time.Now(); time.Since(asked) < 3*r.docs.hold(); after(slotPoll) {
			if taken, err := r.docs.takeSlot(t.Context(), runSlots("trending"), "another", 1); err != nil || taken {
				t.Errorf("the slot of the run that waits was given to another: %t, %v", taken, err)
			}
		}
		free()
		if p := <-passed; p.Outcome != Succeeded {
			t.Errorf("pass %+v", p)
		}
		for _, of := range []string{"trending", "youtube/key1"} {
			found := must.Get(w.store.Job(t.Context(), runSlots(of)))(t)
			check.Equal(t, string(found.Text), `{"held":[]}`, "slots of", of)
		}
	})
}

// A slot that a crashed daemon had is free after a minute and a half.
func TestASlotOfACrashedDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.list[0].BudgetParallel = 1
		r := w.runner()
		if taken, err := r.docs.takeSlot(t.Context(), runSlots("youtube/key1"), "crashed", 1); err != nil || !taken {
			t.Fatal(taken, err)
		}
		began := time.Now()
		check.Equal(t, r.Once(t.Context(), nil)[0].Outcome, Succeeded, "pass")
		want := r.docs.hold() + 2*r.options.Heartbeat
		if waited := time.Since(began); waited < want || waited > want+slotPoll {
			t.Errorf("it waited %s for a slot that stands %s, want %s", waited, r.docs.hold(), want)
		}
	})
}

// What waits to be caught up has its turn one pass at a time, over all jobs of a
// budget and over daemons.
func TestCatchUpIsNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &together{wait: 3 * time.Minute}
		caught := "schedule = \"0 * * * *\"\ncatch_up = \"all\""
		w := twoJobs(t, setup{upstream: upstream, job: "regions = [\"US\"]\n" + caught}, caught)
		w.follow(false, 30*time.Minute)
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
		w.follow(false, 30*time.Minute)
		after(4 * time.Hour)
		stop := w.daemon(false)
		before := counted.calls.Load()
		after(29 * time.Second)
		if n := counted.calls.Load() - before; upstream.asked.Load() != jobs || upstream.most.Load() != 1 || n > jobs*20 {
			t.Errorf("%d passes, %d at once, %d calls", upstream.asked.Load(), upstream.most.Load(), n)
		}
		stop()
	})
}

// Of the runs that wait for a slot, the first as many as there are slots are noted, in the order
// of their passes; the note ends with the wait, or soon after its process.
func TestRunsThatWaitAreNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 100})
		docs, name := w.runner().docs, runSlots("youtube/key1")
		try := func(holder string, guarantee, tick int64) {
			t.Helper()
			if _, err := docs.trySlot(t.Context(), name, 1, waiter{slot{Holder: holder}, guarantee, tick}, true); err != nil {
				t.Fatal(err)
			}
		}
		noted := func() (list []string) {
			for _, one := range must.Get(readDocument[slots](name, must.Get(w.store.Job(t.Context(), name))(t)))(t).Waiting {
				list = append(list, one.Holder)
			}
			return list
		}
		try("holder", 0, 0)
		try("early", 0, 10)
		try("late", 0, 11)
		try("equal", 0, 10)
		check.EqualSlices(t, noted(), []string{"early"}, "noted")
		try("important", 1, 20)
		check.EqualSlices(t, noted(), []string{"early", "important"}, "noted")
		docs.freeSlot(t.Context(), name, "early")
		check.EqualSlices(t, noted(), []string{"important"}, "noted after one has given up")
		after(slotWait)
		try("late", 0, 11)
		check.EqualSlices(t, noted(), []string{"late"}, "noted after the others have died")
		docs.freeSlot(t.Context(), name, "holder")
		try("late", 0, 11)
		check.Equal(t, len(noted()), 0, "noted while nobody waits")
	})
}

// A deferred pass has a slot unless runs are under way, or wait and come before it.
func TestDeferredPassesBesideRunsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 100})
		w.list[0].BudgetParallel = 2
		r := w.runner()
		d, name := &daemon{runner: r}, runSlots("youtube/key1")
		list := []candidate{{guarantee: 5, left: deferred{Tick: 30}}, {left: deferred{Tick: 10}}, {left: deferred{Tick: 20}}}
		left := func() int {
			t.Helper()
			return len(must.Get(d.withSlots(t.Context(), "youtube/key1", list))(t))
		}
		check.Equal(t, left(), 3, "with two slots")
		must.Get(r.docs.takeSlot(t.Context(), name, "a", 2))(t)
		check.Equal(t, left(), 3, "with one")
		must.Get(r.docs.trySlot(t.Context(), name, 1, waiter{slot{Holder: "b"}, 0, 15}, true))(t)
		check.Equal(t, left(), 2, "while a run of tick 15 waits")
		must.Get(r.docs.trySlot(t.Context(), name, 1, waiter{slot{Holder: "c"}, 5, 30}, true))(t)
		check.Equal(t, left(), 0, "while a run of the first pass waits")
		after(slotWait)
		check.Equal(t, left(), 3, "after they have died")
		must.Get(r.docs.takeSlot(t.Context(), name, "d", 2))(t)
		check.Equal(t, left(), 0, "with none")
	})
}
